// SPDX-License-Identifier: Apache-2.0
// Models recorded in PyTorch (tests/samples, made by scripts/record.py and scripts/record_cases.py), run again and compared tensor by tensor.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <set>

#include "stepgraph/base/error.h"
#include "stepgraph/base/file.h"
#include "stepgraph/compile/capture/pt2/import.h"
#include "stepgraph/train/check.h"
#include "tests/support/error_of.h"
#include "tests/support/places.h"

namespace stepgraph {
namespace samples_test {

namespace fs = std::filesystem;

const std::string samples = std::string(testing::source_root()) + "/tests/samples";

/// Folders with a recorded run, relative to tests/samples.
std::vector<std::string> recorded_folders(const std::string& under, const std::string& program = "model.pt2") {
  std::vector<std::string> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(samples + under))
    if (fs::exists(entry.path() / "data.safetensors") && fs::exists(entry.path() / program)) found.push_back((under.empty() ? "" : under.substr(1) + "/") + entry.path().filename().string());
  std::sort(found.begin(), found.end());
  return found;
}

std::string test_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}

void expect_agrees(const std::string& folder, const std::string& program, const std::string& mesh) {
  const CheckReport report = check_folder(samples + "/" + folder, {program, mesh, {}});
  EXPECT_TRUE(report.ok()) << text(report, 12);
  EXPECT_GE(report.rows.size(), 2u);
}

class Sample : public ::testing::TestWithParam<std::string> {};

TEST_P(Sample, Exported) { expect_agrees(GetParam(), "model.pt2", ""); }
TEST_P(Sample, Core) { expect_agrees(GetParam(), "model_core.pt2", ""); }
TEST_P(Sample, ExportedOnTwoRanks) { expect_agrees(GetParam(), "model.pt2", "data=2"); }
TEST_P(Sample, CoreOnTwoRanks) { expect_agrees(GetParam(), "model_core.pt2", "data=2"); }

INSTANTIATE_TEST_SUITE_P(All, Sample, ::testing::ValuesIn(recorded_folders("")), test_name);

class Case : public ::testing::TestWithParam<std::string> {};

class CoreCase : public ::testing::TestWithParam<std::string> {};

TEST_P(Case, Exported) { expect_agrees(GetParam(), "model.pt2", ""); }
TEST_P(CoreCase, Core) { expect_agrees(GetParam(), "model_core.pt2", ""); }

INSTANTIATE_TEST_SUITE_P(All, Case, ::testing::ValuesIn(recorded_folders("/cases")), test_name);
INSTANTIATE_TEST_SUITE_P(All, CoreCase, ::testing::ValuesIn(recorded_folders("/cases", "model_core.pt2")), test_name);

/// A copy of a sample whose manifest is changed.
class Changed {
 public:
  Changed(const std::string& sample, const std::string& from, const std::string& to, const std::string& under = "")
      : root_(fs::temp_directory_path() / ("stepgraph_changed_" + sample)) {
    fs::remove_all(root_);
    fs::create_directories(root_);
    fs::copy(samples + under + "/" + sample, root_ / sample, fs::copy_options::recursive);
    fs::permissions(root_ / sample, fs::perms::owner_all);
    std::string manifest = read_file(samples + under + "/manifest.json");
    const size_t entry = manifest.find("\"name\": \"" + sample + "\"");
    const size_t at = manifest.find(from, entry);
    EXPECT_NE(at, std::string::npos) << from;
    write_file((root_ / "manifest.json").string(), manifest.replace(at, from.size(), to));
    folder_ = (root_ / sample).string();
  }
  ~Changed() {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }
  const std::string& folder() const { return folder_; }

 private:
  fs::path root_;
  std::string folder_;
};

TEST(Check, AnotherOptimizerIsFound) {
  for (const auto& [from, to] : {std::pair{"\"weight_decay\": 0.01", "\"weight_decay\": 0.0"}, {"0.999", "0.99"}, {"1e-08", "1e-05"}}) {
    const Changed changed("mlp_gelu", from, to);
    const CheckReport report = check_folder(changed.folder());
    EXPECT_FALSE(report.ok()) << from << " -> " << to;
    EXPECT_TRUE(report.rows.front().tensor.starts_with("after.param")) << report.rows.front().tensor;
    EXPECT_NE(text(report).find("differs in"), std::string::npos);
  }
}

/// What Adam makes of rounding errors is neither compared nor a reason to allow more elsewhere.
TEST(Check, NoiseHidesNothing) {
  const Changed decay("noise", "\"weight_decay\": 0.01", "\"weight_decay\": 0.0", "/cases");
  EXPECT_FALSE(check_folder(decay.folder()).ok());
  const Changed wide("noise", "\"suggest_rel\": 1e-05", "\"suggest_rel\": 0.06", "/cases");
  const CheckReport report = check_folder(wide.folder());
  ASSERT_EQ(report.warnings.size(), 1u);
  EXPECT_NE(report.warnings[0].find("to differ by 0.06 of a tensor's largest value: this says little"), std::string::npos) << report.warnings[0];
  EXPECT_TRUE(check_folder(samples + "/cases/noise").warnings.empty());
}

/// Decomposing has removed the stop-gradients; a check that compared gradients all the same must see it.
TEST(Check, LostStopGradientIsFound) {
  const Changed changed("stop_gradient", "\"core_keeps_gradients\": false", "\"core_keeps_gradients\": true");
  EXPECT_FALSE(check_folder(changed.folder(), {"model_core.pt2", "", {}}).ok());
  const CheckReport kept = check_folder(samples + "/stop_gradient", {"model_core.pt2", "", {}});
  EXPECT_TRUE(kept.ok());
  EXPECT_EQ(kept.rows.size(), 4u) << text(kept);  // loss and alt.loss, a tensor and a group each
  EXPECT_FALSE(kept.warnings.empty());
}

TEST(Check, FoldersThatCannotBeChecked) {
  EXPECT_NE(testing::error_of([] { check_folder("/nowhere/at/all"); }).find("cannot open /nowhere/at/all: not a folder"), std::string::npos);
  EXPECT_NE(testing::error_of([] { check_folder(std::string(testing::source_root()) + "/docs"); }).find("has a manifest.json"), std::string::npos);
  EXPECT_NE(testing::error_of([] { parse_recorded_run("[1", "x", "m.json"); }).find("m.json: not JSON"), std::string::npos);
  EXPECT_EQ(testing::error_of([] { parse_recorded_run(R"({"samples": [{"name": "a"}, {"name": "b"}]})", "x", "m.json"); }), "m.json: has no entry named 'x'");
  EXPECT_EQ(testing::error_of([] { parse_recorded_run(R"({"optimizer": {"kind": "Rprop"}})", "x", "m.json"); }),
            "m.json: found optimizer kind 'Rprop', wanted SGD, Adam or AdamW");
  EXPECT_EQ(testing::error_of([] { parse_recorded_run(R"({"optimizer": {"kind": "SGD"}, "files": {"data": "../../x"}})", "x", "m.json"); }),
            "m.json: found file '../../x', wanted a name in the folder");
  EXPECT_EQ(testing::error_of([] { parse_recorded_run(R"({"optimizer": {"kind": "SGD"}, "steps": "five"})", "x", "m.json"); }), "m.json: 'steps' has another type than is wanted");
}

/// One error for all operators that are not known: names, how often, the user's line, what to do.
TEST(Import, UnknownOperatorsAreListedTogether) {
  const std::string message = testing::error_of([] { import_pt2(samples + "/cases/unknown/model.pt2"); });
  EXPECT_NE(message.find("bessel_j0"), std::string::npos) << message;
  EXPECT_NE(message.find("matrix_exp"), std::string::npos) << message;
  EXPECT_NE(message.find("2"), std::string::npos) << message;
  EXPECT_NE(message.find("record_cases.py:"), std::string::npos) << message;
}

/// A write that would be lost is refused.
TEST(Import, WritesToParametersAreRefused) {
  const std::string message = testing::error_of([] { import_pt2(samples + "/cases/clamped_parameter/model.pt2"); });
  EXPECT_NE(message.find("writes to parameter first.weight"), std::string::npos) << message;
}

/// Sizes that only a guard equates are one symbol, so that a batch can be cut by it.
TEST(Import, GuardedSizesAreOneSymbol) {
  const Imported imported = import_pt2(samples + "/cases/own_sizes/model.pt2");
  EXPECT_EQ(imported.forward.symbols.all().size(), 2u);
}

TEST(Import, TiedWeightsAreOneParameter) {
  const Imported imported = import_pt2(samples + "/tiny_gpt/model.pt2");
  ASSERT_EQ(imported.tied.size(), 1u);
  const auto& [first, others] = *imported.tied.begin();
  ASSERT_EQ(others.size(), 1u);
  EXPECT_EQ((std::set<std::string>{first, others[0]}), (std::set<std::string>{"wte.weight", "head.weight"}));
  int64_t with_name = 0;
  for (const auto& [name, value] : imported.weights) with_name += name == "wte.weight" || name == "head.weight";
  EXPECT_EQ(with_name, 1);
}

}  // namespace samples_test
}  // namespace stepgraph
