// SPDX-License-Identifier: Apache-2.0
// The verifier against a machine that goes through every element: of plans with one thing changed, those that the machine finds unsound must be refused, and
// most others accepted.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <random>

#include "stepgraph/base/error.h"
#include "stepgraph/program/verify_plan.h"
#include "tests/support/effort.h"
#include "tests/support/plan_samples.h"
#include "tests/unit/plan_model.h"

namespace stepgraph {
namespace plan_verify_mutants_test {

using testing::plan_sample;
using testing::unsound_in_model;

struct Mutation {
  std::string name;
  std::function<void(StepPlan&)> apply;
};
using Mutations = std::vector<Mutation>;

template <class Visit>
void for_each_body(std::vector<Instruction>& body, const Visit& visit) {
  visit(body);
  for (Instruction& instruction : body)
    if (auto* repeat = std::get_if<Repeat>(&instruction.op)) for_each_body(repeat->body, visit);
}
template <class Visit>
void for_each_view(StepPlan& plan, const Visit& visit) {
  for_each_body(plan.entries[0].instructions, [&](std::vector<Instruction>& body) {
    for (Instruction& instruction : body) {
      if (auto* call = std::get_if<FormCall>(&instruction.op))
        for (FormLaunch& launch : call->launches)
          for (View& view : launch.operands) visit(view);
      if (auto* call = std::get_if<MatMulCall>(&instruction.op))
        for (View* view : {&call->lhs, &call->rhs, &call->out}) visit(*view);
    }
  });
}

/// Changes item number `wanted` in the order of a walk.
template <class Item, class Walk, class Change>
void change_item(StepPlan& plan, size_t wanted, const Walk& walk, const Change& change) {
  size_t number = 0;
  Item* found = nullptr;
  walk(plan, [&](Item& item) {
    if (number++ == wanted) found = &item;
  });
  if (found != nullptr) change(*found);
}

Mutations view_mutations(const StepPlan& plan) {
  Mutations mutations;
  const auto walk = [](StepPlan& to, const auto& visit) { for_each_view(to, visit); };
  size_t views = 0;
  StepPlan counted = plan;
  walk(counted, [&](View&) { ++views; });
  for (size_t i = 0; i < views; ++i) {
    const auto add = [&](const std::string& what, const std::function<void(View&)>& change) {
      mutations.push_back({"view " + std::to_string(i) + " " + what, [=](StepPlan& to) { change_item<View>(to, i, walk, change); }});
    };
    for (size_t buffer = 0; buffer < plan.entries[0].buffers.size(); ++buffer)
      add("of b" + std::to_string(buffer), [=](View& view) { view.buffer = static_cast<int>(buffer); });
    for (const int offset : {-4, -1, 1, 2, 4, 8}) add("moved by " + std::to_string(offset), [=](View& view) { view.offset = view.offset + offset; });
    add("transposed", [](View& view) { std::reverse(view.strides.begin(), view.strides.end()); });
    add("stretched", [](View& view) {
      for (Dim& stride : view.strides) stride = stride * 2;
    });
    add("longer", [](View& view) {
      if (!view.sizes.empty()) view.sizes[0] = view.sizes[0] + 1;
    });
  }
  return mutations;
}

void change_count(Instruction& instruction, int by) {
  if (auto* call = std::get_if<Repeat>(&instruction.op)) call->count = call->count + by;
  auto* call = std::get_if<FormCall>(&instruction.op);
  if (call == nullptr || call->launches.empty()) return;
  if (call->launches[0].sizes.empty())
    call->launches.pop_back();
  else
    call->launches[0].sizes[0] = call->launches[0].sizes[0] + by;
}
void change_kind(Instruction& instruction) {
  if (auto* call = std::get_if<MatMulCall>(&instruction.op)) call->accumulate = !call->accumulate;
  if (auto* call = std::get_if<Repeat>(&instruction.op)) call->parallel = !call->parallel;
}

Mutations instruction_mutations(const StepPlan& plan) {
  using Body = std::vector<Instruction>;
  Mutations mutations;
  const auto walk = [](StepPlan& to, const auto& visit) { for_each_body(to.entries[0].instructions, visit); };
  std::vector<size_t> sizes;
  StepPlan counted = plan;
  walk(counted, [&](Body& body) { sizes.push_back(body.size()); });
  for (size_t b = 0; b < sizes.size(); ++b) {
    for (size_t i = 0; i < sizes[b]; ++i) {
      /// `moves_commit`: by how much, where the instruction stands before it.
      const auto add = [&](const std::string& what, int moves_commit, const std::function<void(Body&)>& change) {
        const int move = b == 0 && static_cast<int>(i) < plan.entries[0].commit_begin ? moves_commit : 0;
        mutations.push_back({"body " + std::to_string(b) + ", instruction " + std::to_string(i) + " " + what, [=](StepPlan& to) {
                               change_item<Body>(to, b, walk, change);
                               to.entries[0].commit_begin += move;
                             }});
      };
      const auto at = static_cast<std::ptrdiff_t>(i);
      add("left out", -1, [=](Body& body) { body.erase(body.begin() + at); });
      add("twice", 1, [=](Body& body) { body.insert(body.begin() + at, Instruction(body[i])); });
      add("twice without a meeting", 1, [=](Body& body) {
        body.insert(body.begin() + at, Instruction(body[i]));
        body[i + 1].meet = false;
      });
      for (size_t j = i + 1; j < sizes[b]; ++j) add("exchanged with " + std::to_string(j), 0, [=](Body& body) { std::swap(body[i], body[j]); });
      add("with the other meeting", 0, [=](Body& body) { body[i].meet = !body[i].meet; });
      add("on the other threads", 0, [=](Body& body) { body[i].one_thread = !body[i].one_thread; });
      add("longer", 0, [=](Body& body) { change_count(body[i], 1); });
      add("shorter", 0, [=](Body& body) { change_count(body[i], -1); });
      add("of the other kind", 0, [=](Body& body) { change_kind(body[i]); });
      add("backwards and without private buffers", 0, [=](Body& body) {
        if (auto* call = std::get_if<Repeat>(&body[i].op)) call->private_buffers.clear(), call->reverse = true;
      });
    }
  }
  return mutations;
}

Mutations buffer_mutations(const StepPlan& plan) {
  Mutations mutations;
  const std::vector<Buffer>& buffers = plan.entries[0].buffers;
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i].space != Space::Arena) continue;
    const auto add = [&](const std::string& what, const std::function<void(Buffer&)>& change) {
      mutations.push_back({"buffer " + std::to_string(i) + " " + what, [=](StepPlan& to) { change(to.entries[0].buffers[i]); }});
    };
    for (const Buffer& other : buffers)
      if (const int64_t offset = other.offset; other.space == Space::Arena && offset != buffers[i].offset)
        add("at " + std::to_string(offset), [=](Buffer& buffer) { buffer.offset = offset; });
    for (const int64_t offset : {-64, 4, 32, 64, 128, 8192}) add("moved by " + std::to_string(offset), [=](Buffer& buffer) { buffer.offset += offset; });
    add("of half the bytes", [](Buffer& buffer) { buffer.bytes /= 2; });
    add("of one element less", [](Buffer& buffer) { buffer.elements = buffer.elements - 1; });
    add("of one element more", [](Buffer& buffer) { buffer.elements = buffer.elements + 1; });
  }
  for (int commit = 0; commit <= static_cast<int>(plan.entries[0].instructions.size()); ++commit)
    mutations.push_back({"commit at " + std::to_string(commit), [=](StepPlan& to) { to.entries[0].commit_begin = commit; }});
  for (size_t i = 0; i < plan.entries[0].new_states.size(); ++i)
    mutations.push_back({"new state " + std::to_string(i) + " left out", [=](StepPlan& to) {
                           auto& states = to.entries[0].new_states;
                           states.erase(states.begin() + static_cast<std::ptrdiff_t>(i));
                         }});
  return mutations;
}

struct Counts {
  int unsound = 0, sound = 0, accepted = 0;
};

void check_mutant(const StepPlan& plan, const std::string& name, const SymbolValues& sizes, Counts& counts) {
  const std::string fault = unsound_in_model(plan, sizes);
  std::string verdict;
  try {
    verify(plan, sizes);
  } catch (const InternalError& error) {
    verdict = error.what();
  }
  if (fault.empty()) {
    ++counts.sound;
    counts.accepted += verdict.empty() ? 1 : 0;
    return;
  }
  ++counts.unsound;
  EXPECT_NE(verdict, "") << name << ": accepted, but " << fault;
}

/// Each change by itself; then pairs of them.
Counts check_mutants(const std::string& name, const SymbolValues& sizes) {
  const StepPlan plan = parse_plan(plan_sample(name));
  EXPECT_EQ(unsound_in_model(plan, sizes), "");
  Mutations second = view_mutations(plan), first = instruction_mutations(plan);
  const Mutations buffers = buffer_mutations(plan);
  second.insert(second.end(), buffers.begin(), buffers.end());
  const size_t instructions = first.size();
  first.insert(first.end(), second.begin(), second.end());
  Counts counts;
  for (size_t i = 0; i < first.size(); i += testing::is_sanitized ? 17 : 1) {
    StepPlan mutant = plan;
    first[i].apply(mutant);
    check_mutant(mutant, name + ", " + first[i].name, sizes, counts);
  }
  // Most changes are unsound by themselves: pairs begin with one that is not, as an instruction or a meeting less.
  std::mt19937_64 random(5);
  for (int64_t round = 0; round < testing::rounds(500); ++round) {
    StepPlan mutant = plan;
    const Mutation &a = first[random() % (round % 2 == 0 ? instructions : first.size())], &b = second[random() % second.size()];
    a.apply(mutant);
    if (!unsound_in_model(mutant, sizes).empty()) continue;
    b.apply(mutant);
    check_mutant(mutant, name + ", " + a.name + ", " + b.name, sizes, counts);
  }
  return counts;
}

TEST(PlanVerifyMutants, UnsoundOnesAreRefusedAndMostOthersAreNot) {
  Counts all;
  for (const auto& [name, sizes] : {std::pair<std::string, SymbolValues>{"step", {{"batch", 3}}}, {"parts", {{"rows", 3}}}, {"updates", {{"batch", 3}}}}) {
    const Counts counts = check_mutants(name, sizes);
    std::cout << name << ": " << counts.unsound << " unsound mutants, all refused; of " << counts.sound << " sound ones " << counts.accepted << " accepted\n";
    all.unsound += counts.unsound;
    all.sound += counts.sound;
    all.accepted += counts.accepted;
  }
  if (testing::is_sanitized) return;
  EXPECT_GT(all.unsound, 1000);
  EXPECT_GT(all.sound, 200);
  EXPECT_GT(all.accepted, all.sound * 6 / 10);
}

}  // namespace plan_verify_mutants_test
}  // namespace stepgraph
