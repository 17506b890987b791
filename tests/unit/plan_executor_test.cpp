// SPDX-License-Identifier: Apache-2.0
// Small plans written by hand, whose forms are functions of C++: order, meetings, commits and errors of the executor, without a compiler.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>

#include "stepgraph/base/error.h"
#include "stepgraph/run/device/gemm.h"
#include "stepgraph/run/executor/plan_executor.h"
#include "stepgraph/run/executor/planned_memory.h"
#include "tests/support/error_of.h"
#include "tests/unit/hand_plan.h"

namespace stepgraph {
namespace plan_executor_test {

using stepgraph::testing::error_of;

const Dim rows = Dim::symbol("rows");

/// out[i] = in[i] + 1 for `s0` elements, 16 a part.
void add_one(void* const* operands, const int64_t* sizes, int64_t begin, int64_t end, void*, int64_t*) {
  const auto* in = static_cast<const float*>(operands[0]);
  auto* out = static_cast<float*>(operands[1]);
  for (int64_t i = begin * 16; i < std::min(end * 16, sizes[0]); ++i) out[i] = in[i] + 1;
}
/// out[i] = in[count - 1 - i] * 2: reads what other threads wrote.
void twice_reversed(void* const* operands, const int64_t* sizes, int64_t begin, int64_t end, void*, int64_t*) {
  const auto* in = static_cast<const float*>(operands[0]);
  auto* out = static_cast<float*>(operands[1]);
  for (int64_t i = begin * 16; i < std::min(end * 16, sizes[0]); ++i) out[i] = in[sizes[0] - 1 - i] * 2;
}
/// out[0] = sum of in.
void total(void* const* operands, const int64_t* sizes, int64_t begin, int64_t end, void*, int64_t*) {
  const auto* in = static_cast<const float*>(operands[0]);
  if (begin < end) *static_cast<float*>(operands[1]) = std::accumulate(in, in + sizes[0], 0.0F);
}
/// out[i] = in[i], where a value of 7 is an index out of bounds.
void checked_copy(void* const* operands, const int64_t* sizes, int64_t begin, int64_t end, void*, int64_t* status) {
  const auto* in = static_cast<const float*>(operands[0]);
  auto* out = static_cast<float*>(operands[1]);
  for (int64_t i = begin * 16; i < std::min(end * 16, sizes[0]); ++i) {
    out[i] = in[i];
    if (in[i] == 7) status[0] = 1, status[1] = 7, status[2] = 5;
  }
}
/// state[i] -= in[0] for `s0` elements.
void subtract(void* const* operands, const int64_t* sizes, int64_t begin, int64_t end, void*, int64_t*) {
  auto* state = static_cast<float*>(operands[0]);
  for (int64_t i = begin * 16; i < std::min(end * 16, sizes[0]); ++i) state[i] -= *static_cast<const float*>(operands[1]);
}
/// The same, and says when a result is not finite.
void watched_subtract(void* const* operands, const int64_t* sizes, int64_t begin, int64_t end, void* scratch, int64_t* status) {
  subtract(operands, sizes, begin, end, scratch, status);
  const auto* state = static_cast<const float*>(operands[0]);
  for (int64_t i = begin * 16; i < std::min(end * 16, sizes[0]); ++i)
    if (!std::isfinite(state[i])) status[3] = 1;
}

/// A plan of one entry "step" with input x [rows, 40]; buffers 0: x, 1: state w, 2 and 3: of x's size, 4: a scalar.
struct StepOfRows : HandPlan {
  int x, w, a, b, sum;
  FormFunction update = subtract;
  explicit StepOfRows(int threads = 1, int64_t most_rows = 8) : HandPlan(threads) {
    plan.symbols.declare({.name = "rows", .minimum = 1, .maximum = most_rows});
    plan.states.push_back({"w", RoleKind::Parameter, DType::F32, {Dim(100)}});
    x = input("x", DType::F32, {rows, 40});
    w = state(0, 100);
    a = arena(rows * 40, most_rows * 40 * 4, "a");
    b = arena(rows * 40, most_rows * 40 * 4, "b");
    sum = arena(1, 4, "sum");
    entry().new_states = {"w"};
  }
  Dim parts() const { return ceildiv(Dim::symbol("s0"), Dim(16)); }
  /// x + 1 to a; twice a reversed to b; total of b to sum, which is the loss; then w -= sum in the commit.
  void usual() {
    add(form(add_one, {false, true}, parts()), {view(x), view(a)}, {rows * 40});
    add(form(twice_reversed, {false, true}, parts()), {view(a), view(b)}, {rows * 40});
    add(form(total, {false, true}, 1), {view(b), view(sum)}, {rows * 40});
    loss(sum);
    entry().commit_begin = static_cast<int>(entry().instructions.size());
    add(form(update, {true, false}, parts()), {view(w), view(sum)}, {100});
  }
};

Literal counted(int64_t count) {
  Literal x(DType::F32, {count, 40});
  for (int64_t i = 0; i < x.count(); ++i) x.set(i, static_cast<double>(i % 23) - 3);
  return x;
}
EntryInputs inputs_of(int64_t count) {
  EntryInputs inputs;
  inputs.batch["x"] = counted(count);
  inputs.sizes["rows"] = count;
  return inputs;
}
double wanted_loss(int64_t count) {
  const std::vector<double> x = counted(count).to_doubles();
  return 2 * std::accumulate(x.begin(), x.end(), static_cast<double>(x.size()));
}

TEST(PlanExecutor, StatesAreWrittenByACommitAlone) {
  StepOfRows plan;
  plan.usual();
  plan.run([&](Executor& executor) {
    executor.write_state("w", Literal::full(DType::F32, {100}, 50));
    for (int i = 0; i < 2; ++i) EXPECT_EQ(executor.run("step", inputs_of(3)).loss.at("loss").numerator, wanted_loss(3));
    EXPECT_EQ(executor.read_state("w"), Literal::full(DType::F32, {100}, 50));
    EXPECT_EQ(executor.commit(), std::nullopt);
    EXPECT_EQ(executor.read_state("w"), Literal::full(DType::F32, {100}, 50 - wanted_loss(3)));
    executor.commit();  // of nothing
    EXPECT_EQ(executor.read_state("w"), Literal::full(DType::F32, {100}, 50 - wanted_loss(3)));
  });
}

TEST(PlanExecutor, AnyNumberOfThreadsMeetsWhereItMust) {
  for (const int threads : {1, 2, 3, 5}) {
    StepOfRows plan(threads, 64);
    plan.usual();
    plan.entry().instructions[2].one_thread = true;
    plan.run([&](Executor& executor) {
      executor.write_state("w", Literal::full(DType::F32, {100}, 0));
      double w = 0;
      for (int round = 0; round < 64; ++round) {
        const int64_t count = 1 + round % 64;
        ASSERT_EQ(executor.run("step", inputs_of(count)).loss.at("loss").numerator, wanted_loss(count)) << threads << " threads, round " << round;
        executor.commit();
        w -= wanted_loss(count);
        ASSERT_EQ(executor.read_state("w").at(99), static_cast<float>(w));
      }
    });
  }
}

TEST(PlanExecutor, SizesMayChangeFromRunToRun) {
  StepOfRows plan(2);
  plan.usual();
  plan.run([&](Executor& executor) {
    executor.write_state("w", Literal::full(DType::F32, {100}, 0));
    for (const int64_t count : {8, 8, 5, 1, 8, 2, 3, 4, 6, 7, 8, 1})
      EXPECT_EQ(executor.run("step", inputs_of(count)).loss.at("loss").numerator, wanted_loss(count));
    EntryInputs wrong = inputs_of(4);
    wrong.sizes["rows"] = 5;
    EXPECT_EQ(error_of([&] { executor.run("step", wrong); }), "entry step: input x is f32[4, 40], wanted f32[5, 40]");
  });
}

TEST(PlanExecutor, APlanThatIsTooSmallIsRefused) {
  StepOfRows plan;
  plan.usual();
  plan.run([&](Executor& executor) {
    executor.write_state("w", Literal::full(DType::F32, {100}, 0));
    EXPECT_EQ(error_of([&] { executor.run("step", inputs_of(9)); }), "entry step: rows is 9, the program was made for rows in [1, 8]");
    EXPECT_EQ(executor.run("step", inputs_of(8)).loss.at("loss").numerator, wanted_loss(8));
  });
  StepOfRows narrow;
  narrow.usual();
  narrow.entry().buffers[static_cast<size_t>(narrow.b)].bytes = 4 * 40 * 4;
  narrow.run([&](Executor& executor) {
    executor.write_state("w", Literal::full(DType::F32, {100}, 0));
    EXPECT_EQ(error_of([&] { executor.run("step", inputs_of(5)); }),
              "entry step: b takes 800 bytes where rows is 5, the program was made for at most 640 bytes and rows in [1, 8]");
  });
}

TEST(PlanExecutor, AnIndexOutOfBoundsIsAnErrorAndNothingIsCommitted) {
  for (const int threads : {1, 2, 3}) {
    StepOfRows plan(threads);
    plan.usual();
    const int copy = plan.form(checked_copy, {false, true}, plan.parts());
    plan.insert(1, copy, {plan.view(plan.a), plan.view(plan.b)}, {rows * 40}, "embedding", "tokens");
    plan.run([&](Executor& executor) {
      executor.write_state("w", Literal::full(DType::F32, {100}, 1));
      EntryInputs inputs;
      inputs.batch["x"] = Literal::full(DType::F32, {8, 40}, 0);
      inputs.sizes["rows"] = 8;
      executor.run("step", inputs);
      inputs.batch["x"].set(317, 6);
      try {
        executor.run("step", inputs);
        FAIL();
      } catch (const UserError& error) {
        EXPECT_EQ(std::string(error.what()), "embedding: index 7 is outside of [0, 5) (step, tokens)");
        ASSERT_NE(error.bad_index(), nullptr);
        EXPECT_EQ(error.bad_index()->index, 7);
      }
      executor.commit();
      EXPECT_EQ(executor.read_state("w").at(0), 1);
      inputs.batch["x"].set(317, 0);
      executor.run("step", inputs);  // and it goes on
    });
  }
}

TEST(PlanExecutor, AScatterByABadIndexIsAnErrorAndItsBitsAreThoseOfAnyNumberOfThreads) {
  std::optional<Literal> first;
  for (const int threads : {1, 2, 3}) {
    StepOfRows plan(threads);
    const int index = plan.input("index", DType::I64, {rows}), out = plan.arena(200, 800, "out");
    ScatterCall call;
    call.index = View{index, 0, {1, rows, 40}, {0, 1, 0}};
    call.updates = plan.dense(plan.x, {1, rows, 40});
    call.out = plan.dense(out, {1, 5, 40});
    plan.insert(0, call, "index_add");
    plan.output("out", plan.dense(out, {5, 40}));
    plan.entry().commit_begin = 1;
    plan.run([&](Executor& executor) {
      executor.write_state("w", Literal::full(DType::F32, {100}, 1));
      EntryInputs inputs = inputs_of(6);
      inputs.batch["index"] = Literal::from_integers(DType::I64, {6}, std::vector<int64_t>{4, 0, 4, 2, 2, 4});
      const Literal found = executor.run("step", inputs).outputs.at("out"), x = counted(6);
      EXPECT_EQ(found.at(4 * 40 + 7), x.at(7) + x.at(87) + x.at(207));
      EXPECT_EQ(found.at(40 + 7), 0);
      if (!first) first = found;
      EXPECT_EQ(found, *first);
      inputs.batch["index"].set_integer(5, 5);
      EXPECT_EQ(error_of([&] { executor.run("step", inputs); }), "index_add: index 5 is outside of [0, 5) (step)");
      inputs.batch["index"].set_integer(5, 4);
      EXPECT_EQ(executor.run("step", inputs).outputs.at("out"), *first);
    });
  }
}

TEST(PlanExecutor, ProgramsAreReadOnceAndTheirErrorsEndTheRun) {
  for (const int threads : {1, 3}) {
    StepOfRows plan(threads);
    plan.usual();
    plan.entry().instructions.erase(plan.entry().instructions.begin() + 1);
    EvaluateCall call{"reverse twice", {plan.dense(plan.a, {rows, 40})}, {plan.dense(plan.b, {rows, 40})}, {DType::F32}, {DType::F32}, "for a test"};
    plan.insert(1, call, "reverse");
    int reads = 0;
    bool fails = false;
    plan.options.read_program = [&](const std::string& program) -> EvaluateProgram {
      EXPECT_EQ(program, "reverse twice");
      ++reads;
      return [&](std::vector<Literal> inputs, const SymbolValues& symbols) -> std::vector<Literal> {
        if (fails) throw UserError("it failed");
        EXPECT_EQ(symbols.at("rows"), inputs[0].sizes()[0]);
        std::vector<double> values = inputs[0].to_doubles();
        std::reverse(values.begin(), values.end());
        for (double& value : values) value *= 2;
        return {Literal::from_doubles(DType::F32, inputs[0].sizes(), values)};
      };
    };
    plan.run([&](Executor& executor) {
      executor.write_state("w", Literal::full(DType::F32, {100}, 1));
      EXPECT_EQ(executor.run("step", inputs_of(4)).loss.at("loss").numerator, wanted_loss(4));
      fails = true;
      EXPECT_EQ(error_of([&] { executor.run("step", inputs_of(4)); }), "it failed");
      fails = false;
      EXPECT_EQ(executor.run("step", inputs_of(5)).loss.at("loss").numerator, wanted_loss(5));
      EXPECT_EQ(reads, 1);
    });
  }
}

/// out[0] = in[0] * 3 + s0: the order of iterations shows.
void fold(void* const* operands, const int64_t* sizes, int64_t begin, int64_t end, void*, int64_t*) {
  if (begin < end) *static_cast<float*>(operands[1]) = *static_cast<const float*>(operands[0]) * 3 + static_cast<float>(sizes[0]);
}
TEST(PlanExecutor, RepeatsRunInTheirOrder) {
  for (const bool reverse : {false, true}) {
    for (const int threads : {1, 2}) {
      StepOfRows plan(threads);
      const int number = plan.form(fold, {false, true}, 1);
      plan.add(plan.form(add_one, {false, true}, plan.parts()), {plan.view(plan.x), plan.view(plan.sum)}, {1});
      Repeat repeat{"i", rows - 1, reverse, false, {}, {}};
      repeat.body.push_back(instruction(FormCall{number, {{{plan.view(plan.sum), plan.view(plan.sum)}, {Dim::symbol("i") * 2}}}}));
      plan.add(repeat);
      plan.loss(plan.sum);
      plan.entry().commit_begin = 2;
      plan.run([&](Executor& executor) {
        executor.write_state("w", Literal(DType::F32, {100}));
        for (const int64_t count : {5, 1, 3}) {
          double wanted = -2;
          for (int64_t i = 0; i < count - 1; ++i) wanted = wanted * 3 + static_cast<double>(2 * (reverse ? count - 2 - i : i));
          EXPECT_EQ(executor.run("step", inputs_of(count)).loss.at("loss").numerator, wanted);
        }
      });
    }
  }
}

TEST(PlanExecutor, PiecesOfAParallelRepeatHaveBuffersOfTheirOwn) {
  for (const int threads : {1, 2, 3}) {
    StepOfRows plan(threads, 64);
    const Dim i = Dim::symbol("i");
    const int temporary = plan.arena(40, 160, "temporary");
    Repeat repeat{"i", rows, false, true, {temporary}, {}};
    const int one = plan.form(add_one, {false, true}, plan.parts()), reversed = plan.form(twice_reversed, {false, true}, plan.parts());
    repeat.body.push_back(instruction(FormCall{one, {{{{plan.x, i * 40, {}, {}}, plan.view(temporary)}, {Dim(40)}}}}));
    repeat.body.push_back(instruction(FormCall{reversed, {{{plan.view(temporary), {plan.a, i * 40, {}, {}}}, {Dim(40)}}}}));
    plan.add(repeat);
    plan.output("a", plan.dense(plan.a, {rows, 40}));
    plan.entry().commit_begin = 1;
    plan.options.poison = threads == 2;
    plan.run([&](Executor& executor) {
      executor.write_state("w", Literal(DType::F32, {100}));
      for (int round = 0; round < 20; ++round) {
        for (const int64_t count : {64, 2, 7}) {
          const Literal found = executor.run("step", inputs_of(count)).outputs.at("a"), x = counted(count);
          for (int64_t e = 0; e < x.count(); ++e) ASSERT_EQ(found.at(e), 2 * (x.at(e / 40 * 40 + 39 - e % 40) + 1)) << threads << " threads, element " << e;
        }
      }
    });
  }
}

TEST(PlanExecutor, PoisonShowsWhatIsReadBeforeItIsWrittenOrAfterItsLastUse) {
  for (const bool poison : {false, true}) {
    StepOfRows plan(2);
    plan.usual();
    plan.options.poison = poison;
    plan.run([&](Executor& executor) {
      executor.write_state("w", Literal::full(DType::F32, {100}, 1));
      EXPECT_EQ(executor.run("step", inputs_of(4)).loss.at("loss").numerator, wanted_loss(4));
      executor.commit();
      EXPECT_EQ(executor.read_state("w").at(0), 1 - wanted_loss(4));
    });
    // `late` lies where a was, and is read without having been written.
    StepOfRows wrong(2);
    wrong.usual();
    const int late = wrong.arena(1, 4, "late");
    wrong.entry().buffers[static_cast<size_t>(late)].offset = wrong.entry().buffers[static_cast<size_t>(wrong.a)].offset;
    ++wrong.entry().commit_begin;
    wrong.insert(3, wrong.form(add_one, {false, true}, wrong.parts()), {wrong.view(late), wrong.view(wrong.sum)}, {1});
    wrong.options.poison = poison;
    wrong.run([&](Executor& executor) {
      executor.write_state("w", Literal::full(DType::F32, {100}, 1));
      EXPECT_EQ(std::isnan(executor.run("step", inputs_of(4)).loss.at("loss").numerator), poison);
    });
  }
}

/// Writes its second operand, and as many elements beyond it as the size says.
void write_beyond(void* const* at, const int64_t* sizes, int64_t, int64_t end, void*, int64_t*) {
  if (end == 0) return;
  auto* const out = static_cast<float*>(at[1]);
  for (int64_t i = 0; i < std::abs(sizes[0]); ++i) out[sizes[0] < 0 ? -i : i] = 1;
}

TEST(PlanExecutor, CanariesShowWhatWritesBesideItsBuffer) {
  for (const int64_t elements : {4, 5, 16, 64, -1, -2}) {
    for (const bool canaries : {false, true}) {
      StepOfRows plan(1);
      plan.usual();
      const int own = plan.arena(4, 16, "four");
      plan.insert(1, plan.form(write_beyond, {false, true}, 1), {plan.view(plan.w), plan.view(own)}, {elements});
      plan.arena(1000, 4000, "room");
      plan.options.canaries = canaries;
      plan.run([&, count = elements](Executor& executor) {
        executor.write_state("w", Literal::full(DType::F32, {100}, 1));
        try {
          executor.run("step", inputs_of(4));
          EXPECT_FALSE(canaries && (count > 4 || count < -1)) << count << " elements";
        } catch (const InternalError& error) {
          EXPECT_TRUE(canaries && (count > 4 || count < -1)) << count << " elements";
          EXPECT_NE(std::string(error.what()).find("four"), std::string::npos) << error.what();
        }
      });
    }
  }
}

TEST(PlanExecutor, TellsOfTheFirstStateThatACommitMadeNonFinite) {
  for (const auto& [count, is_watched] : {std::pair(100, false), std::pair(1000000, false), std::pair(100, true), std::pair(1000000, true)}) {
    StepOfRows plan(2);
    if (is_watched) plan.update = watched_subtract;
    plan.plan.states[0].sizes = {Dim(count)};
    plan.entry().buffers[static_cast<size_t>(plan.w)].elements = count;
    plan.plan.states.push_back({"steps", RoleKind::OptimizerState, DType::I64, {}});
    plan.usual();
    plan.plan.forms.back().operands[0].is_watched = is_watched;
    plan.entry().new_states = {"steps", "w"};
    std::get<FormCall>(plan.entry().instructions.back().op).launches[0].sizes = {Dim(count)};
    plan.run([&, state_count = count](Executor& executor) {
      EXPECT_THROW(executor.read_state("w"), InternalError);
      Literal w = Literal::full(DType::F32, {state_count}, 1);
      executor.write_state("w", w);
      executor.write_state("steps", Literal::integer(DType::I64, 3));
      EntryInputs inputs = inputs_of(2);
      executor.run("step", inputs);
      EXPECT_EQ(executor.commit(), std::nullopt);
      w.set(state_count - 1, std::numeric_limits<double>::infinity());
      executor.write_state("w", w);
      executor.run("step", inputs);
      EXPECT_EQ(executor.commit(), std::nullopt);  // it was so before
      executor.write_state("w", Literal::full(DType::F32, {state_count}, 1));
      inputs.batch["x"].set(3, std::numeric_limits<double>::quiet_NaN());
      executor.run("step", inputs);
      EXPECT_EQ(executor.commit(), "w");
    });
  }
}

TEST(PlanExecutor, AWatchedStateIsNotReadAgain) {
  StepOfRows plan(2);
  plan.usual();
  plan.plan.forms.back().operands[0].is_watched = true;  // and yet its form says nothing
  plan.run([&](Executor& executor) {
    executor.write_state("w", Literal::full(DType::F32, {100}, 1));
    EntryInputs inputs = inputs_of(2);
    inputs.batch["x"].set(3, std::numeric_limits<double>::quiet_NaN());
    executor.run("step", inputs);
    EXPECT_EQ(executor.commit(), std::nullopt);
    EXPECT_TRUE(std::isnan(executor.read_state("w").at(0)));
  });
}

TEST(PlanExecutor, WhoKnowsTheOperationsFindsWhatIsNotFinite) {
  for (const bool is_known : {false, true}) {
    StepOfRows plan;
    plan.usual();
    if (is_known)
      plan.options.find_non_finite = [](std::string_view entry, const EntryInputs& inputs, const std::function<Literal(std::string_view)>& read_state) {
        throw UserError(std::string(entry) + " of " + inputs.batch.at("x").text(0) + " with w " + read_state("w").text(1));
      };
    plan.run([&](Executor& executor) {
      executor.write_state("w", Literal::full(DType::F32, {100}, 2));
      EXPECT_EQ(error_of([&] { executor.find_non_finite("step", inputs_of(2)); }),
                is_known ? "step of f32[2, 40] {...} with w f32[100] {2, ...}" : "which operation made it is not known of a compiled program");
    });
  }
}

TEST(PlanExecutor, CountsTheBytesThatItHolds) {
  StepOfRows plan(3);
  plan.usual();
  plan.plan.constants.push_back(Literal(DType::F32, {17}));
  plan.run([&](Executor& executor) { EXPECT_EQ(executor.peak_bytes(), plan.entry().arena_bytes + 448 + 128); });
  EXPECT_EQ(planned_memory(plan.plan).total(), plan.entry().arena_bytes + 448 + 128);
}

/// A product, an attention of its rows and a convolution of that: as many threads as there are, the bits are the same.
TEST(PlanExecutor, LibraryCallsGiveEqualBitsUnderAnyNumberOfThreads) {
  if (!has_libraries()) GTEST_SKIP() << "a build without libraries";
  std::optional<EntryResults> first;
  for (const int threads : {1, 2, 3}) {
    StepOfRows plan(threads, 64);
    const int64_t most = 64 * 40 * 4;
    const int square = plan.arena(1600, 6400, "square"), lse = plan.arena(rows * 4, 64 * 16, "lse"), out = plan.arena(rows * 40, most, "out");
    plan.add(
        MatMulCall{plan.transposed(plan.x, rows, 40), plan.dense(plan.x, {rows, 40}), plan.dense(square, {40, 40}), DType::F32, false, GemmLibrary::OpenBlas});
    plan.add(MatMulCall{plan.dense(plan.x, {rows, 40}), plan.dense(square, {40, 40}), plan.dense(plan.a, {rows, 40}), DType::F32, false, GemmLibrary::OneDnn});
    AttentionCall attention;
    attention.q = attention.k = attention.v = View{plan.a, 0, {1, 4, rows, 10}, {0, 10, 40, 1}};
    attention.out = View{plan.b, 0, {1, 4, rows, 10}, {0, 10, 40, 1}};
    attention.lse = plan.dense(lse, {1, 4, rows});
    attention.scale = 1e-4;
    plan.add(attention);
    ConvolutionCall convolution{
        ConvolutionPass::Forward, plan.dense(plan.b, {rows, 1, 40}), plan.dense(plan.w, {1, 1, 3}), plan.dense(out, {rows, 1, 40}), {1}, {1}, {1}, {1}, 1};
    plan.add(convolution);
    plan.output("square", plan.dense(square, {40, 40}));
    plan.output("attention", plan.dense(plan.b, {rows, 40}));
    plan.output("out", plan.dense(out, {rows, 40}));
    plan.entry().commit_begin = 4;
    plan.run([&](Executor& executor) {
      Literal w(DType::F32, {100});
      for (int i = 0; i < 3; ++i) w.set(i, i + 1);
      executor.write_state("w", w);
      const EntryResults found = executor.run("step", inputs_of(50));
      const Literal x = counted(50), &product = found.outputs.at("square"), &mixed = found.outputs.at("attention"), &sums = found.outputs.at("out");
      double wanted = 0;
      for (int64_t i = 0; i < 50; ++i) wanted += x.at(i * 40 + 3) * x.at(i * 40 + 7);
      EXPECT_EQ(product.at(3 * 40 + 7), wanted);
      EXPECT_NEAR(sums.at(41), mixed.at(40) + 2 * mixed.at(41) + 3 * mixed.at(42), 1e-3);
      EXPECT_TRUE(std::isfinite(mixed.at(0)));
      if (!first) first = found;
      EXPECT_TRUE(found.outputs == first->outputs) << threads << " threads";
      executor.run("step", inputs_of(3));
      EXPECT_TRUE(executor.run("step", inputs_of(50)).outputs == first->outputs);
    });
  }
}

TEST(PlanExecutor, CollectivesGoToTheRanksOfTheirAxes) {
  StepOfRows plan(2);
  plan.plan.mesh = parse_mesh("data=2");
  declare_coordinates(plan.plan.symbols, plan.plan.mesh);
  plan.add(plan.form(total, {false, true}, 1), {plan.view(plan.x), plan.view(plan.sum)}, {rows * 40});
  CollectiveCall call{CollectiveKind::AllReduce, ReduceKind::Sum, DType::F32, plan.dense(plan.sum, {}), plan.dense(plan.b, {}), 0, 0, 0, {AxisRef{"data"}}};
  plan.add(call);
  plan.loss(plan.b);
  plan.entry().commit_begin = 2;
  plan.run([&](Executor& executor) {
    executor.write_state("w", Literal(DType::F32, {100}));
    EntryInputs inputs = inputs_of(3);
    EXPECT_EQ(executor.run("step", inputs).loss.at("loss").numerator, 2 * (wanted_loss(3) / 2 - 120));
  });
}

}  // namespace plan_executor_test
}  // namespace stepgraph
