// SPDX-License-Identifier: Apache-2.0
// Norms, rotary positions, grouped queries, losses and recurrences against PyTorch's numbers (f64), and losses' denominators.
#include <cmath>

#include <gtest/gtest.h>

#include "stepgraph/compile/capture/layers.h"
#include "tests/reference/module_runner.h"

namespace stepgraph::testing {
namespace composite_values_test {

using Numbers = std::vector<double>;

/// Plain fractions in [-1, 1].
Numbers fractions(int64_t count, int64_t from = 0) {
  Numbers numbers;
  for (int64_t i = from; i < from + count; ++i) numbers.push_back(static_cast<double>((i * 7919 + 13 * i * i) % 101) / 50 - 1);
  return numbers;
}
Literal made(Sizes sizes, int64_t from = 0) { return f64(sizes, fractions(element_count(sizes), from)); }

const Numbers rms{0.816496580927726, -0.112349929535655, 0.388652372521598,  0.308131554607857, -0.839144933715398, 0.898717034272917,
                  0.670729711209205, 0.939021595692887,  0.0218377115277416, 0.476637142458006, -0.858854736695759, 0.730843618435609};
const Numbers rms_default{-1.95242006020391, 0.156193604816313,  -0.663822820469331,  -0.468580814448939, 0.741919622877487, -0.976210030101957,
                          -1.11704013024153, -0.909218710661711, -0.0259776774474775, -1.09106245279405,  1.14301780768901,  -1.19497316258396};
const Numbers group{-0.939097175244361, -1.67638015906241,   -0.629913988481955, 1.97767959074674,   1.65042107921976,   0.259572405230104,
                    -0.345863378403619, -1.87294841316513,   -0.274836167484479, -0.180338224813901, -0.161059410421563, -0.206212423077302,
                    -0.426197055698816, -1.32903984326504,   -0.539052404144593, 1.74703002365943,   1.08705194594852,   -0.58230436826142,
                    -0.246495824327382, -0.0555812548453797, -0.69196315311872,  -0.215304043404212, -0.188939650475745, -0.186212299483145};
const Numbers instance{-0.678054566418224, -1.51477263992407,  -0.32717279365771,  1.66421988723296,   1.28779434136114,   -0.312014228594104,
                       -0.459464351936213, -1.90846675681984,  -0.392068891243951, -0.177625397481035, -0.156801960007031, -0.205572642511934,
                       -0.420190270625746, -1.53968288229042,  -0.56012684708383,  1.75248724351994,   1.17460608222751,   -0.287093325747454,
                       -0.701106330601651, -0.208595574455365, -1.85029809494298,  -0.208014534286589, -0.168059378828667, -0.163926086884744};
const Numbers rotary{-0.34,
                     -0.24,
                     0.38,
                     -0.5,
                     -0.447830563350442,
                     -0.612642845711282,
                     -0.734471093052154,
                     -0.905686890486321,
                     -0.202535679332863,
                     -0.714912080666585,
                     0.875088166185085,
                     -1.10403836750222,
                     0.84,
                     -0.9,
                     -0.1,
                     -0.8,
                     -0.714619876408514,
                     -0.594872630786269,
                     -0.705775057820748,
                     -0.481795136070741,
                     -0.484532701188575,
                     -0.176943187056786,
                     -0.815615142992639,
                     0.16819960925694};
const Numbers grouped{-0.02, -0.84, 0.465184382553297, -0.883127500671404, 0.303720866997978,   -0.907600747704002,
                      -0.02, -0.84, 0.563571901498586, -0.891873057910985, 0.37796524132636,    -0.908628620186444,
                      0.84,  -0.9,  0.216926609395002, -0.833715596744149, -0.0864484782165608, -0.78407302692573,
                      0.84,  -0.9,  0.294876185013452, -0.842008104788665, -0.0849982403973742, -0.779953294180316};
const Numbers losses{0.7405, 0.915134086562785, 0.768319916773453, 0.768319916773453};
const Numbers weighted_losses{1.76999318332928, 1.97452820274884, 1.73058737646971, 1.73058737646971};
const Numbers lstm{-0.0386968580749301, -0.0258564437512358, -0.25270320727836,   -0.0557832883208734, -0.041858395447573,  -0.0384927041149484,
                   -0.251154424417325,  -0.0567304514650759, -0.0491412842230191, -0.0424510479713992, -0.226559990436545,  -0.0541804564732787,
                   -0.0287209502144456, -0.036814513093361,  -0.151700235484481,  -0.0265376098159743, -0.0261805202157778, -0.030511315933245,
                   -0.290695655944912,  -0.0608768153715959, -0.0351682316300838, -0.0371831164378663, -0.244708052690867,  -0.0493754015599609,
                   -0.048814421781958,  -0.0428361705718869, -0.235576373385704,  -0.0604766649485702, -0.0474876920014054, -0.0461652900760057,
                   -0.191357946085743,  -0.0483672738880652};
const Numbers gru{-0.134524424481195, -0.582416859119488, -0.862939670772236, -0.81754566311868,  -0.0113117686730544, -0.730510809659215, -0.83978432380037,
                  -0.868235103818455, 0.252845771973334,  -0.870037596395252, -0.880177559597813, -0.774506948089203,  0.336990464639597,  -0.92388689766218,
                  -0.809450456186168, -0.628193341420852, -0.238088146373135, -0.216091880152589, -0.688589520870947,  -0.856532052588747, 0.140316807206186,
                  -0.597839747124813, -0.851326387466339, -0.74902404714587,  0.286267754134517,  -0.80041221344649,   -0.812942991185278, -0.74228262930046,
                  0.326114435484031,  -0.842412760514333, -0.713560863803892, -0.637087110063689};

void expect_close(const Literal& found, const Numbers& wanted) {
  ASSERT_EQ(found.count(), static_cast<int64_t>(wanted.size()));
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(found.at(static_cast<int64_t>(i)), wanted[i], 2e-13) << i;
}

TEST(Norms, AsPyTorch) {
  const auto found =
      evaluate({made({2, 2, 3}), made({3}, 5), made({2, 4, 3}, 3), made({4}, 5), made({4}, 9)}, [](Builder&, const auto& in) -> std::vector<Value> {
        const GroupNorm groups = group_norm(in[2], 2, in[3], in[4], 1e-3);
        return {rms_norm(in[0], 1, in[1], 1e-3), rms_norm(in[0], 2), groups.result, instance_norm(in[2], in[3], in[4], 1e-3), groups.mean};
      });
  expect_close(found[0], rms);
  expect_close(found[1], rms_default);
  expect_close(found[2], group);
  expect_close(found[3], instance);
  EXPECT_EQ(found[4].sizes(), (Sizes{2, 2}));
}

TEST(Rotary, HalvesAndPairsAndGivenPositions) {
  const auto found = evaluate({made({2, 3, 4}, 2), i64({3}, {0, 1, 2})}, [](Builder&, const auto& in) -> std::vector<Value> {
    RotaryOptions options;
    options.theta = 100;
    const Value plain = rotary_embedding(in[0], options);
    // Neighbours as pairs: the same numbers in another order.
    options.interleaved = true;
    const Value mixed = permute(unflatten(in[0], -1, {2, 2}), {0, 1, 3, 2});
    const Value turned = rotary_embedding(flatten(mixed, 2, 3), options);
    const Value back = flatten(permute(unflatten(turned, -1, {2, 2}), {0, 1, 3, 2}), 2, 3);
    options.interleaved = false;
    options.positions = in[1];
    return {plain, back, rotary_embedding(in[0], options)};
  });
  for (const Literal& value : found) expect_close(value, rotary);
}

TEST(Attention, KeyHeadsServeRunsOfQueries) {
  const auto found = evaluate({made({1, 4, 3, 2}, 1), made({1, 2, 3, 2}, 4), made({1, 2, 3, 2}, 8)}, [](Builder&, const auto& in) -> std::vector<Value> {
    AttentionOptions options;
    options.causal = true;
    return {scaled_dot_product_attention(in[0], in[1], in[2], options)};
  });
  expect_close(found[0], grouped);
  EXPECT_THROW(evaluate({made({1, 4, 3, 2}), made({1, 3, 3, 2}), made({1, 3, 3, 2})},
                        [](Builder&, const auto& in) -> std::vector<Value> { return {scaled_dot_product_attention(in[0], in[1], in[2])}; }),
               UserError);
}

TEST(Losses, ElementWiseAsPyTorch) {
  Numbers a = fractions(6), b = fractions(6, 4);
  for (double& x : a) x *= 3;
  for (double& x : b) x = std::min(1.0, std::max(0.0, x));
  const auto found = evaluate({f64({6}, a), f64({6}, b)}, [](Builder& builder, const auto& in) -> std::vector<Value> {
    const Value logs = log_softmax(unflatten(in[0], 0, {2, 3}), -1), target = unflatten(in[1], 0, {2, 3});
    const auto mean_of = [](const LossSum& loss) { return loss.numerator / loss.denominator; };
    const Value two = full(builder, DType::F64, {1}, 2);
    return {mean_of(huber_sum(in[0], in[1], .75)), mean_of(bce_with_logits_sum(in[0], in[1], two)), mean_of(kl_div_sum(logs, softmax(target, -1))),
            mean_of(kl_div_sum(logs, log_softmax(target, -1), true))};
  });
  for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(found[i].at(0), losses[i], 1e-13) << i;
}

TEST(Losses, ExtremeLogitsStayFinite) {
  const auto found = evaluate({f32({4}, {1e4, -1e4, 1e4, -1e4}), f32({4}, {1, 0, 0, 1})},
                              [](Builder&, const auto& in) -> std::vector<Value> { return {bce_with_logits_losses(in[0], in[1])}; });
  EXPECT_EQ(found[0].to_doubles(), (Numbers{0, 0, 1e4, 1e4}));
}

TEST(Losses, ClassWeightsAndSmoothing) {
  Numbers logits = fractions(24, 6);
  for (double& x : logits) x *= 2;
  const auto found =
      evaluate({f64({2, 4, 3}, logits), i64({2, 3}, {0, 3, -100, 2, 1, 3}), f64({4}, {.5, 2, 1, .25})}, [](Builder&, const auto& in) -> std::vector<Value> {
        CrossEntropyOptions both;
        both.class_dim = 1;
        CrossEntropyOptions smooth = both, weighted = both;
        smooth.label_smoothing = both.label_smoothing = .125;
        weighted.weight = both.weight = in[2];
        const auto mean_of = [](const LossSum& loss) { return loss.numerator / loss.denominator; };
        return {mean_of(cross_entropy_sum(in[0], in[1], both)), mean_of(cross_entropy_sum(in[0], in[1], smooth)),
                mean_of(cross_entropy_sum(in[0], in[1], weighted)), mean_of(nll_sum(log_softmax(in[0], 1), in[1], weighted)),
                cross_entropy_sum(in[0], in[1], both).denominator};
      });
  for (size_t i = 0; i < weighted_losses.size(); ++i) EXPECT_NEAR(found[i].at(0), weighted_losses[i], 1e-13) << i;
  EXPECT_EQ(found[4].at(0), .5 + .25 + 1 + 2 + .25) << "the weights of the targets that count";
}

/// Two layers in both directions over x [batch, length, 3], both symbolic; parameter k of PyTorch's order is fractions(.., k).
void check_recurrent(const std::function<Value(Scope, Value, const RecurrentLayerOptions&)>& layer, const Numbers& wanted) {
  const Dim batch = Dim::symbol("batch"), length = Dim::symbol("length");
  RecurrentLayerOptions options;
  options.hidden = options.layers = 2;
  options.bidirectional = true;
  Module module = capture({{"x", DType::F64, {batch, length, 3}}}, [&](Scope s, Inputs in) -> Loss {
    const Value y = layer(s / "rnn", in["x"], options);
    return Loss(convert(sum(y), DType::F32)).output("y", y);
  });
  ModuleRunner runner(train_step(std::move(module), Optimizer{}));
  int64_t k = 0;
  for (const char* l : {"_l0", "_l0_reverse", "_l1", "_l1_reverse"})
    for (const char* kind : {"weight_ih", "weight_hh", "bias_ih", "bias_hh"}) {
      Literal& parameter = runner.state.at(std::string("rnn.") + kind + l);
      parameter = made(parameter.sizes(), k++);
    }
  expect_close(runner.eval({{"x", made({2, 4, 3})}}).user.at("y"), wanted);
  // Another length, one step included, with the same module; and it learns.
  for (int64_t steps : {1, 6}) EXPECT_EQ(runner.eval({{"x", made({3, steps, 3})}}).user.at("y").sizes(), (Sizes{3, steps, 4}));
  const double before = runner.eval({{"x", made({2, 4, 3})}}).loss();
  for (int i = 0; i < 5; ++i) runner.step({{"x", made({2, 4, 3})}});
  EXPECT_LT(runner.eval({{"x", made({2, 4, 3})}}).loss(), before);
}

TEST(Recurrent, LstmAsPyTorch) {
  check_recurrent([](Scope s, Value x, const RecurrentLayerOptions& o) { return stepgraph::lstm(s, x, o); }, lstm);
}
TEST(Recurrent, GruAsPyTorch) {
  check_recurrent([](Scope s, Value x, const RecurrentLayerOptions& o) { return stepgraph::gru(s, x, o); }, gru);
}

}  // namespace composite_values_test
}  // namespace stepgraph::testing
