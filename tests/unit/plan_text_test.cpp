// SPDX-License-Identifier: Apache-2.0
// Plans as text and as files: nothing is lost, and no bytes can do harm.
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <random>

#include "stepgraph/program/form_text.h"
#include "stepgraph/program/plan_file.h"
#include "tests/support/effort.h"
#include "tests/support/error_of.h"
#include "tests/support/plan_samples.h"

namespace stepgraph {
namespace plan_text_test {

using testing::error_of;
using testing::plan_sample;

/// A sample with what its text does not have: long constants and machine code.
StepPlan full_plan() {
  StepPlan plan = parse_plan(plan_sample("calls"));
  plan.constants.push_back(Literal::full(DType::F32, {10, 10}, 2.5));
  std::vector<int64_t> counted(65);
  for (size_t i = 0; i < counted.size(); ++i) counted[i] = static_cast<int64_t>(i * i);
  plan.constants.push_back(Literal::from_integers(DType::I64, {5, 13}, counted));
  plan.constants.push_back(Literal(DType::Bool, {0, 3}));
  plan.code[0].object = std::string("\x7f") + "ELF" + std::string(3000, '\0') + "end";
  return plan;
}

void expect_equal(const StepPlan& a, const StepPlan& b) {
  EXPECT_EQ(a.target, b.target);
  EXPECT_EQ(a.symbols, b.symbols);
  EXPECT_EQ(a.mesh, b.mesh);
  EXPECT_EQ(a.states, b.states);
  EXPECT_EQ(a.constants, b.constants);
  EXPECT_EQ(a.forms, b.forms);
  EXPECT_EQ(a.code, b.code);
  EXPECT_EQ(a.entries, b.entries);
}

TEST(PlanText, SamplesPrintAsTheyStand) {
  for (const char* name : {"step", "parts", "calls"}) EXPECT_EQ(text(parse_plan(plan_sample(name), name)), plan_sample(name)) << name;
}

TEST(PlanText, FieldsThatPlansRarelySayReadBack) {
  StepPlan plan = parse_plan(plan_sample("step"));
  PlanEntry& entry = plan.entries[0];
  entry.buffers[7].index = 3;
  entry.buffers[0].offset = 64;
  entry.buffers[0].bytes = -1;
  entry.inputs[0].role = {RoleKind::Metric, "", 2};
  entry.outputs[0].view = {10, Dim::symbol("batch") * 2 - 5, {}, {Dim(7)}};
  auto& call = std::get<FormCall>(entry.instructions[1].op);
  call.launches[0].operands[0] = {7, 3, {2, Dim::symbol("batch")}, {Dim(-1), Dim(0)}};
  call.launches.push_back({});
  entry.instructions[2].op = FormCall{.form = 4, .launches = {}};
  entry.instructions[3].op =
      Repeat{.symbol = "j", .count = floordiv(Dim::symbol("batch"), 2), .reverse = true, .parallel = true, .private_buffers = {}, .body = {}};
  AttentionCall attention;
  attention.scale = 0.1;
  attention.mask = View{1, 0, {Dim(3)}, {Dim(1)}};
  attention.dropout = AttentionCall::Dropout{0.25, View{3, 1, {}, {}}, 5, Dim::symbol("batch") * 12, 4, 2};
  attention.gradient.emplace();
  entry.instructions[4].op = attention;
  PoolCall pool;
  pool.pass = PoolPass::Average, pool.count_padding = true;
  entry.instructions[5].op = pool;
  ScanCall scan;
  scan.kind = ScanKind::LogSumExp;
  entry.instructions[6].op = scan;
  const StepPlan read = parse_plan(text(plan));
  expect_equal(read, plan);
  EXPECT_EQ(text(read), text(plan));
}

TEST(PlanText, StatementsAreBrokenAtTheWidthOfALine) {
  const std::string printed = text(parse_plan(plan_sample("calls")));
  size_t begin = 0, longest = 0;
  for (size_t end; (end = printed.find('\n', begin)) != std::string::npos; begin = end + 1) longest = std::max(longest, end - begin);
  EXPECT_LE(longest, 160u);
}

TEST(PlanText, LongConstantsStandAsTheirHash) {
  const StepPlan plan = full_plan();
  const std::string whole = text(plan), part = text(plan, {.constants = false});
  EXPECT_NE(part.find("constant f32[10, 10] hash \""), std::string::npos);
  EXPECT_NE(part.find("constant bool[0, 3] {}"), std::string::npos);
  EXPECT_NE(whole.find("constant f32[10, 10] splat 2.5"), std::string::npos);
  EXPECT_EQ(parse_plan(whole).constants, plan.constants);
  const std::string constants = constant_bytes(plan), objects = object_bytes(plan);
  expect_equal(parse_plan(part, "plan", {.constants = constants, .objects = objects, .has_objects = true}), plan);
  EXPECT_EQ(parse_plan(part, "plan", {.constants = constants}).code[0].object, "");
  EXPECT_EQ(error_of([&] { parse_plan(part); }).substr(8), "10: wanted 400 bytes of constants from outside of the text, found 0");
  std::string other = constants;
  other[399] ^= 1;
  EXPECT_NE(error_of([&] { parse_plan(part, "plan", {.constants = other}); }).find("constants from outside of the text: found bytes of another hash"),
            std::string::npos);
  EXPECT_EQ(error_of([&] { parse_plan(part, "plan", {.constants = constants + "x"}); }), "found 1 bytes of constants that the text does not name");
}

TEST(PlanText, TheHashIsOfEverything) {
  const StepPlan plan = full_plan();
  StepPlan element = plan, object = plan, meeting = plan;
  element.constants[3].set(99, 2.25);
  object.code[0].object.back() ^= 1;
  meeting.entries[0].instructions[2].meet = false;
  EXPECT_EQ(plan_hash(full_plan()), plan_hash(plan));
  for (const StepPlan* other : {&element, &object, &meeting}) EXPECT_NE(plan_hash(*other), plan_hash(plan));
}

// ---- files

std::string sealed(const std::vector<std::string>& sections) {
  const auto number = [](uint64_t value, int bytes) {
    std::string out;
    for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xFF);
    return out;
  };
  const auto hash = [&](const std::string& of) {
    const Hash128 value = hash_bytes(std::as_bytes(std::span(of)));
    return number(value.high, 8) + number(value.low, 8);
  };
  std::string head = "sgplan\r\n" + number(2, 4) + number(sections.size(), 4), content;
  for (const std::string& section : sections) {
    head += number(section.size(), 8) + hash(section);
    content += section;
  }
  return head + hash(head) + content;
}

TEST(PlanFile, ReadsBack) {
  const StepPlan plan = full_plan();
  const std::string bytes = plan_file_bytes(plan);
  expect_equal(plan_of_bytes(bytes, "test.plan"), plan);
  EXPECT_EQ(plan_file_bytes(plan_of_bytes(bytes, "test.plan")), bytes);
  EXPECT_EQ(sealed({text(plan, {.constants = false}), constant_bytes(plan), object_bytes(plan), ""}), bytes);
  const std::string path = (std::filesystem::temp_directory_path() / ("plan_file_test." + std::to_string(getpid()))).string();
  write_plan(path, plan, "a model");
  std::string made_of;
  expect_equal(read_plan(path, &made_of), plan);
  EXPECT_EQ(made_of, "a model");
  std::filesystem::remove(path);
  EXPECT_NE(error_of([&] { read_plan(path); }).find("cannot open"), std::string::npos);
}

TEST(PlanFile, DamageIsToldByKind) {
  const StepPlan plan = full_plan();
  const std::string bytes = plan_file_bytes(plan, "a model"), part = text(plan, {.constants = false}), constants = constant_bytes(plan), objects = object_bytes(plan);
  const auto error = [](const std::string& damaged) { return error_of([&] { plan_of_bytes(damaged, "a.plan"); }); };
  const auto changed = [&](size_t at) {
    std::string result = bytes;
    result[at] = static_cast<char>(result[at] ^ 4);
    return result;
  };
  EXPECT_EQ(error(""), "a.plan: is no plan file");
  EXPECT_EQ(error(changed(3)), "a.plan: is no plan file");
  EXPECT_EQ(error(bytes.substr(0, 10)), "a.plan: plan file is cut off after 10 bytes");
  EXPECT_EQ(error(changed(8)), "a.plan: plan file of version 6, wanted 2");
  EXPECT_EQ(error(bytes.substr(0, 100)), "a.plan: plan file is cut off after 100 bytes");
  EXPECT_EQ(error(changed(16)), "a.plan: plan file is damaged: its head has another hash");
  EXPECT_EQ(error(changed(200)), "a.plan: plan file is damaged: section text has another hash");
  EXPECT_EQ(error(changed(bytes.size() - 1)), "a.plan: plan file is damaged: section made_of has another hash");
  EXPECT_EQ(error(changed(bytes.size() - 8)), "a.plan: plan file is damaged: section objects has another hash");
  EXPECT_EQ(error(bytes.substr(0, bytes.size() - 1)), "a.plan: plan file is cut off: section made_of has 7 bytes, found 6");
  EXPECT_EQ(error(bytes.substr(0, bytes.size() - 8)), "a.plan: plan file is cut off: section objects has 3007 bytes, found 3006");
  EXPECT_EQ(error(bytes + "x"), "a.plan: plan file is followed by 1 bytes more");
  EXPECT_EQ(error(sealed({part, constants, objects})).substr(0, 28), "a.plan: plan file is damaged");  // the head has another size
  EXPECT_EQ(error(sealed({part, constants, objects, "", ""})).substr(0, 28), "a.plan: plan file is damaged");
  EXPECT_NE(error(sealed({part, constants, "", ""})).find("wanted 3007 bytes of code from outside of the text, found 0"), std::string::npos);
  EXPECT_EQ(error(sealed({part, constants, objects + "x", ""})), "a.plan: found 1 bytes of code that the text does not name");
  EXPECT_TRUE(error(sealed({"stepgraph_plan 2", "", "", ""})).starts_with("a.plan:1:16: found format version 2, wanted 1"));
  const std::string huge = "stepgraph_plan 1\ntarget avx2 threads 1 l1 0 l2 0 granularity 1\nconstant f64[";
  EXPECT_NE(error(sealed({huge + "9223372036854775807] hash \"\"\n", "", "", ""})).find("size overflows 64 bits"), std::string::npos);
  EXPECT_NE(error(sealed({huge + "1000000000000] hash \"\"\n", "", "", ""})).find("wanted 8000000000000 bytes of constants"), std::string::npos);
}

TEST(PlanFile, EveryLengthAndTenThousandChangedBytesAreErrors) {
  const std::string bytes = plan_file_bytes(full_plan());
  for (size_t size = 0; size < bytes.size(); size += size < 300 ? 1 : 37)
    EXPECT_NE(error_of([&] { plan_of_bytes(std::string_view(bytes).substr(0, size), "a.plan"); }), "no error") << size;
  std::mt19937_64 random(7);
  for (int64_t round = 0; round < testing::rounds(10'000); ++round) {
    std::string changed = bytes;
    const size_t at = random() % changed.size();
    changed[at] = static_cast<char>(changed[at] ^ (1 + random() % 255));
    EXPECT_NE(error_of([&] { plan_of_bytes(changed, "a.plan"); }), "no error") << at;
  }
}

/// Behind the hashes: what is read prints to text that reads back, anything else is one error with its place.
TEST(PlanFile, ChangedTextsUnderAGoodHashAreErrorsOrPlans) {
  std::mt19937_64 random(11);
  int plans = 0, errors = 0;
  for (const char* name : {"step", "parts", "calls"}) {
    const std::string whole = plan_sample(name);
    for (int64_t round = 0; round < testing::rounds(3'400); ++round) {
      std::string changed = whole;
      const size_t at = random() % changed.size();
      switch (random() % 4) {
        case 0: changed[at] = static_cast<char>(random()); break;
        case 1: changed.erase(at, 1 + random() % 8); break;
        case 2: changed.insert(at, changed.substr(random() % changed.size(), random() % 24)); break;
        default: changed[at] = "09 ,()[]{}%-b*"[random() % 14]; break;
      }
      const std::string message = error_of([&] {
        const std::string printed = text(plan_of_bytes(sealed({changed, "", "", ""}), "a.plan"));
        EXPECT_EQ(text(parse_plan(printed)), printed);
      });
      (message == "no error" ? plans : errors) += 1;
      EXPECT_TRUE(message == "no error" || message.starts_with("a.plan:")) << message;
    }
  }
  EXPECT_GT(plans, errors / 20);
  EXPECT_GT(errors, plans);
}

}  // namespace plan_text_test
}  // namespace stepgraph
