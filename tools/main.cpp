// SPDX-License-Identifier: Apache-2.0
// The `stepgraph` command. Exit codes: 0 done, 1 a check that the command was asked for failed, 2 the user's input is at fault, 3 the machine failed
// (file system, memory, a peer), 4 a fault of Stepgraph itself.
#include <CLI/CLI.hpp>

#include <cstdio>
#include <new>

#include "stepgraph/base/error.h"
#include "tools/verbs.h"

int main(int argc, char** argv) {
  using namespace stepgraph;
  CLI::App app("Stepgraph: a whole training step, captured, compiled and planned as one graph.", "stepgraph");
  app.require_subcommand(1);
  app.footer(
      "Start here:\n"
      "  stepgraph train --config examples/digits.toml --mesh data=2   train a convnet on two ranks\n"
      "  stepgraph show gpt --at local --mesh data=2                   see a module at any stage\n"
      "  stepgraph run examples/square.sg --set x=3 --grad x           evaluate a module and its gradients\n"
      "  stepgraph VERB --help                                         all options of a verb");
  add_train(app);
  add_eval(app);
  add_generate(app);
  add_run(app);
  add_show(app);
  add_doctor(app);
  add_version(app);
  auto fail = [](const char* what, int code) {
    std::fprintf(stderr, "stepgraph: %s\n", what);
    return code;
  };
  try {
    app.parse(argc, argv);
    return std::fflush(stdout) == 0 ? 0 : fail("cannot write to standard output", 3);
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& problem) {
    return fail((std::string(problem.what()) + "; see stepgraph --help, or stepgraph VERB --help").c_str(), 2);
  } catch (const UserError& error) {
    return fail(error.what(), 2);
  } catch (const InternalError& error) {
    return fail((std::string(error.what()) + "\nThis is a fault of Stepgraph: please report it with the command that led to it").c_str(), 4);
  } catch (const std::bad_alloc&) {
    return fail("out of memory", 3);
  } catch (const std::exception& error) {
    return fail(error.what(), 3);
  }
}
