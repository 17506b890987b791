// SPDX-License-Identifier: Apache-2.0
// Registers a test for each .sg file below this folder. `test_text --update` rewrites what the files expect; read the difference before it is committed.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/places.h"
#include "tests/text/runner.h"

namespace {

class FileTest : public ::testing::Test {
 public:
  FileTest(std::string path, bool update) : path_(std::move(path)), update_(update) {}
  void TestBody() override {
    const stepgraph::tests::TextTest test = stepgraph::tests::read_text_test(path_);
    ASSERT_FALSE(test.runs.empty()) << path_ << " has no line `# run: ...`";
    const std::string out = stepgraph::tests::run_text_test(test);
    if (update_) std::ofstream(path_, std::ios::binary) << test.source << "---\n" << out;
    else EXPECT_EQ(out, test.expected) << path_;
  }

 private:
  std::string path_;
  bool update_;
};

void register_files(bool update) {
  const std::filesystem::path root = std::filesystem::path(stepgraph::testing::source_root()) / "tests" / "text";
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root))
    if (entry.path().extension() == ".sg") paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  for (const auto& path : paths) {
    const std::string suite = "Sg_" + path.parent_path().filename().string();
    testing::RegisterTest(suite.c_str(), path.stem().string().c_str(), nullptr, nullptr, __FILE__, __LINE__,
                          [path = path.string(), update]() -> ::testing::Test* { return new FileTest(path, update); });
  }
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const bool update = std::any_of(argv, argv + argc, [](const char* argument) { return std::string(argument) == "--update"; });
  register_files(update);
  return RUN_ALL_TESTS();
}
