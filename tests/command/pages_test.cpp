// SPDX-License-Identifier: Apache-2.0
// docs/jobs.md is made of the option table; docs/command.md and docs/seeing.md show what the command prints.
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "stepgraph/compile/codegen/emit_form.h"
#include "stepgraph/train/models/models.h"
#include "tests/command/tool.h"
#include "tests/command/update.h"
#include "tools/job_options.h"

namespace stepgraph::testing {
namespace pages_test {

std::string cell(std::string text) {
  for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.replace(at, 1, "\\|");
  return text;
}

std::string form(const JobOption& option) {
  switch (option.form) {
    case ValueForm::Word: return "text";
    case ValueForm::Number: return "number";
    case ValueForm::Switch: return "true or false";
    case ValueForm::List: return "list";
  }
  return "";
}

std::string section_text(const std::string& section) {
  if (section == "data") return "What the model learns. A path is relative to the directory where the command is started.";
  if (section == "optimizer") return "Parameter groups are tables of their own, see below.";
  if (section == "schedule") return "The learning rate by step. It starts from `optimizer.lr`.";
  if (section == "train") return "One of `epochs` and `steps` must be given; the first that is reached ends the run.";
  if (section == "checkpoint") return "Without a directory nothing is saved.";
  return "";
}

std::string models_text() {
  std::string text =
      "## [model]\n\n`name` is a model of the zoo (below), a program of PyTorch that ends in `.pt2` ([pt2.md](pt2.md); its one option is `loss`) or a file that "
      "ends in `.sg`.\nAll other keys are options of that model; on the command line `-m NAME` and `-o KEY=VALUE`.\n\n";
  for (const ModelInfo& model : models()) {
    text += "### " + model.name + ": " + model.help + "\n\n| key | default | what |\n|---|---|---|\n";
    for (const ModelOption& option : model.options)
      text += "| `" + option.name + "` | " + (option.default_value.empty() ? "" : "`" + option.default_value + "`") + " | " + cell(option.help) + " |\n";
    text += "\n";
  }
  return text;
}

std::string jobs_page() {
  std::string page =
      "# Job files\n\n"
      "A job file is TOML; `stepgraph train --config FILE` runs it, and `eval`, `generate` and `show` read it too. Every key is also a flag, and a flag "
      "stands\n"
      "over the file. An unknown key is an error that names the nearest one. This page is made of the table that the command reads.\n\n"
      "```toml\n[model]\nname = \"convnet\"\nwidth = 16\n\n[data]\npath = \"data/digits.csv\"\nkind = \"digits\"\n\n[optimizer]\nname = \"adamw\"\nlr = 5e-3\n"
      "no_decay = [\"*.bias\", \"bn*\"]\n\n[train]\nbatch = 64\nepochs = 20\n```\n\n" +
      models_text();
  std::string current;
  for (const JobOption& option : job_options()) {
    const size_t dot = option.key.find('.');
    if (const std::string section = option.key.substr(0, dot); section != current) {
      current = section;
      const std::string text = section_text(section);
      page += (page.ends_with("\n\n") ? "" : "\n") + ("## [" + section + "]\n\n") + text + (text.empty() ? "" : "\n\n") +
              "| key | flag | value | default | what |\n|---|---|---|---|---|\n";
    }
    const std::string shown =
        option.default_value.find(' ') == std::string::npos && !option.default_value.empty() ? "`" + option.default_value + "`" : option.default_value;
    page += "| `" + option.key.substr(dot + 1) + "` | `" + option.flag + "` | " + form(option) + " | " + shown + " | " + cell(option.help) + " |\n";
  }
  page +=
      "\n## [[optimizer.groups]]\n\nA table for each group of parameters with a treatment of its own; the first group whose patterns match a name counts. In a "
      "pattern\n"
      "`*` stands for any characters and `?` for one. On the command line: `--group 'patterns=*.bias; weight_decay=0'`.\n\n"
      "| key | value | what |\n|---|---|---|\n"
      "| `patterns` | list | names of parameters |\n"
      "| `rate_factor` | number | the learning rate is multiplied by it |\n"
      "| `weight_decay` | number | instead of the optimizer's |\n"
      "| `frozen` | true or false | no gradient, no state, no update |\n";
  return page;
}

TEST(Pages, JobsIsMadeOfTheTable) {
  const std::string path = source_file("docs/jobs.md"), page = jobs_page();
  for (const std::string& key : group_keys()) EXPECT_NE(page.find("`" + key + "`"), std::string::npos) << key;
  if (update_wanted()) return write_text(path, page);
  EXPECT_EQ(read_text(path), page) << "run test_command --update";
}

/// The page with each command's output replaced by what `run` gives.
std::string with_outputs(const std::string& page, const std::function<std::string(const std::string&)>& run) {
  std::stringstream lines(page);
  std::string result;
  bool inside = false, skipping = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("```")) inside = line == "```console", skipping = false;
    if (inside && line.starts_with("$ ")) {
      result += line + "\n" + run(line.substr(2));
      skipping = true;
    } else if (!skipping) {
      result += line + "\n";
    }
  }
  return result;
}

/// Every command of the page shows what it prints.
void check_page(const std::string& name, int least_commands) {
  const TemporaryDirectory directory;
  for (const char* folder : {"data", "examples"}) std::filesystem::create_directory_symlink(source_file(folder), directory / folder);
  const std::string path = source_file(name), page = read_text(path);
  int commands = 0;
  const std::string found = with_outputs(page, [&](const std::string& command) {
    ++commands;
    const std::string line = "stepgraph() { \"$STEPGRAPH\" \"$@\"; }; " + command;
    const Outcome outcome = run_shell(line, directory.path());
    EXPECT_NE(outcome.code, 4) << command << "\n" << outcome.err;
    return outcome.out + outcome.err;
  });
  EXPECT_GE(commands, least_commands);
  if (update_wanted()) return write_text(path, found);
  EXPECT_EQ(page, found) << "run test_command --update";
}
TEST(Pages, CommandShowsWhatIsPrinted) { check_page("docs/command.md", 8); }
TEST(Pages, SeeingShowsWhatIsPrinted) {
  if (!has_code_generation()) GTEST_SKIP() << "a build without code generation";
  check_page("docs/seeing.md", 8);
}

}  // namespace pages_test
}  // namespace stepgraph::testing
