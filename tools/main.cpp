// SPDX-License-Identifier: Apache-2.0
// The `stepgraph` command. Exit codes: 0 done, 1 `check` found a difference, 2 the user's input is at fault, 3 the machine failed (file system, memory, a peer), 4 a fault of
// Stepgraph itself.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstdio>
#include <new>
#include <string>
#include <vector>

#include "stepgraph/base/error.h"
#include "stepgraph/base/nearest.h"
#include "stepgraph/base/printable.h"
#include "stepgraph/base/version.h"
#include "tools/verbs.h"

namespace stepgraph {
namespace {

int fail(const std::string& what, int code) {
  std::fprintf(stderr, "stepgraph: %s\n", printable(what, true).c_str());
  return code;
}

/// What the command line got wrong, with the nearest right word.
std::string explain(const CLI::App& app, const CLI::ParseError& problem) {
  const CLI::App* reader = &app;  // the innermost verb that was named
  std::string path = "stepgraph";
  while (!reader->get_subcommands().empty()) path += " " + (reader = reader->get_subcommands().front())->get_name();
  std::vector<std::string> options, verb_names;
  for (const CLI::Option* option : reader->get_options())
    for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
  for (const CLI::App* verb : reader->get_subcommands([](const CLI::App*) { return true; })) verb_names.push_back(verb->get_name());
  const std::string help = "see " + path + " --help";
  const std::vector<std::string> rest = app.remaining(true);
  const auto unknown = std::find_if(rest.begin(), rest.end(), [](const std::string& word) { return word.starts_with("-"); });
  if (!verb_names.empty() && !rest.empty() && !rest.front().starts_with("-"))
    return "unknown verb '" + rest.front() + "', the nearest is " + nearest_names(rest.front(), verb_names, 1) + "; " + help;
  if (unknown != rest.end()) {
    const std::string name = unknown->substr(0, unknown->find('='));
    return "unknown option '" + name + "', the nearest is " + nearest_names(name, options, 1) + "; " + help;
  }
  if (!rest.empty()) return "unexpected argument '" + rest.front() + "'; " + help;
  if (!verb_names.empty()) return "no verb is given; " + help;
  std::string message = problem.what();
  if (message.size() > 1 && std::islower(static_cast<unsigned char>(message[1])))
    message[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(message[0])));
  return message + "; " + help;
}

int run(int argc, char** argv) {
  CLI::App app("Stepgraph: a whole training step, captured, compiled and planned as one graph.", "stepgraph");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("stepgraph ") + version_string);
  app.footer(
      "Start here:\n"
      "  stepgraph train --config examples/digits.toml --mesh data=2   train a convnet on two ranks\n"
      "  stepgraph show gpt --at local --mesh data=2                   see a module at any stage\n"
      "  stepgraph explain fusion gpt --entry step                     see what became of it, and why\n"
      "  stepgraph run examples/square.sg --set x=[1,2,3] --grad x     evaluate a module and its gradients\n"
      "  stepgraph VERB --help                                         all options of a verb\n"
      "Exit codes: 0 done, 1 check found a difference, 2 the input is at fault, 3 the machine failed, 4 a fault of Stepgraph itself.");
  add_train(app);
  add_eval(app);
  add_generate(app);
  add_run(app);
  add_show(app);
  add_explain(app);
  add_compile(app);
  add_check(app);
  add_cache(app);
  add_doctor(app);
  add_version(app);
  std::vector<std::string> words(argv + (argc > 0 ? 1 : 0), argv + argc);
  if (!words.empty() && words[0] == "help") {  // help VERB is VERB --help
    words.erase(words.begin());
    words.push_back("--help");
  }
  std::reverse(words.begin(), words.end());  // the order that the library wants
  try {
    app.parse(words);
  } catch (const CLI::Success& success) {
    app.exit(success);  // prints the help
  } catch (const CLI::RuntimeError& result) {
    return result.get_exit_code();
  } catch (const CLI::ParseError& problem) {
    return fail(explain(app, problem), 2);
  }
  // The stream remembers a failure of any earlier write.
  return std::fflush(stdout) == 0 && !std::ferror(stdout) && std::cout.flush() ? 0 : fail("cannot write to standard output", 3);
}

}  // namespace


}  // namespace stepgraph

int main(int argc, char** argv) {
  using namespace stepgraph;
  // A reader that has seen enough (`| head`) ends the command quietly, even if a parent process ignored the signal.
  std::signal(SIGPIPE, SIG_DFL);
  // A limit on the size of files (ulimit -f) is an error like a full disk, for whoever writes the file to clean up.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    return run(argc, argv);
  } catch (const UserError& error) {
    return fail(error.what(), 2);
  } catch (const InternalError& error) {
    return fail(std::string(error.what()) + "\nThis is a fault of Stepgraph: please report it with the command that led to it", 4);
  } catch (const std::bad_alloc&) {
    return fail("out of memory", 3);
  } catch (const std::exception& error) {
    return fail(error.what(), 3);
  }
}
