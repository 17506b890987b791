// SPDX-License-Identifier: Apache-2.0
// Job files in TOML.
#include <toml++/toml.h>

#include <algorithm>
#include <charconv>

#include "stepgraph/base/file.h"
#include "stepgraph/base/nearest.h"
#include "stepgraph/train/models/models.h"
#include "tools/job_options.h"

namespace stepgraph {
namespace {

const std::vector<std::string>& sections() {
  static const std::vector<std::string> names{"model", "data", "optimizer", "schedule", "train", "checkpoint", "output"};
  return names;
}

/// What stands there, in the user's words.
std::string_view form_text(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::none: return "nothing";
    case toml::node_type::table: return "a table";
    case toml::node_type::array: return "a list";
    case toml::node_type::string: return "a text";
    case toml::node_type::integer: return "an integer";
    case toml::node_type::floating_point: return "a number";
    case toml::node_type::boolean: return "true or false";
    case toml::node_type::date:
    case toml::node_type::time:
    case toml::node_type::date_time: return "a date or time";
  }
  return "something unknown";
}

std::string_view wanted_text(ValueForm form) {
  switch (form) {
    case ValueForm::Word: return "a text in quotes";
    case ValueForm::Number: return "a number";
    case ValueForm::Switch: return "true or false";
    case ValueForm::List: return "a list or a text";
  }
  return "";
}

[[noreturn]] void refuse(const toml::node& node, std::string_view wanted) {
  throw UserError("found " + std::string(form_text(node)) + ", wanted " + std::string(wanted));
}

/// A number, text or truth value as the command line would give it.
std::string scalar_text(const toml::node& node, std::string_view wanted) {
  if (const auto value = node.as_string()) return value->get();
  if (const auto value = node.as_integer()) return std::to_string(value->get());
  if (const auto value = node.as_boolean()) return value->get() ? "true" : "false";
  if (const auto value = node.as_floating_point()) {
    char buffer[40];
    return {buffer, std::to_chars(buffer, buffer + sizeof buffer, value->get()).ptr};
  }
  refuse(node, wanted);
}

std::string list_text(const toml::node& node, std::string_view wanted) {
  const toml::array* array = node.as_array();
  if (!array) return scalar_text(node, wanted);
  std::string joined;
  for (const toml::node& element : *array) {
    const std::string text = scalar_text(element, "a list of numbers or texts");
    if (text.find(',') != std::string::npos) throw UserError("found '" + text + "' in a list, wanted an element without a comma");
    joined += (joined.empty() ? "" : ",") + text;
  }
  return joined;
}

std::string value_text(const toml::node& node, ValueForm form) {
  const std::string_view wanted = wanted_text(form);
  switch (form) {
    case ValueForm::Word:
      if (!node.is_string()) refuse(node, wanted);
      return scalar_text(node, wanted);
    case ValueForm::Number:
      if (!node.is_number()) refuse(node, wanted);
      return scalar_text(node, wanted);
    case ValueForm::Switch:
      if (!node.is_boolean()) refuse(node, wanted);
      return scalar_text(node, wanted);
    case ValueForm::List: return list_text(node, wanted);
  }
  return {};
}

/// What a file holds as part of a message: one line of bounded length.
std::string one_line(std::string_view text) {
  constexpr size_t longest = 300;
  std::string line;
  for (const char character : text.substr(0, longest)) {
    if (character == '\n')
      line += "\\n";
    else
      line += static_cast<unsigned char>(character) < 0x20 || character == 0x7f ? '?' : character;
  }
  return text.size() > longest ? line + " (cut here)" : line;
}

/// As the project's own messages: lower case, no full stop.
std::string tidy_message(std::string_view text) {
  std::string message = one_line(text);
  if (!message.empty() && message[0] >= 'A' && message[0] <= 'Z') message[0] = static_cast<char>(message[0] - 'A' + 'a');
  while (message.ends_with('.')) message.pop_back();
  return message;
}

class JobReader {
 public:
  JobReader(const std::string& name, JobText& job) : name_(name), job_(job) {}

  void read(const toml::table& root) {
    for (const auto& [key, node] : root) {
      const std::string section(key.str());
      const bool known = std::find(sections().begin(), sections().end(), section) != sections().end();
      if (const toml::table* table = node.as_table(); table && known)
        read_section(section, *table);
      else
        throw error(key.source(), wrong_section(section, node, known));
    }
    if (const auto model = root.find("model"); model != root.end()) check_model(*model->second.as_table());
    for (GivenOption& given : job_.given) given.objection = objection_to(given.key, job_.job, true);
  }

 private:
  UserError error(const toml::source_region& source, const std::string& message) const {
    return UserError(name_ + ":" + std::to_string(source.begin.line) + ": " + one_line(message));
  }

  static std::string wrong_section(const std::string& section, const toml::node& node, bool known) {
    if (known) return "found " + std::string(form_text(node)) + " called " + section + ", wanted a section [" + section + "]";
    if (node.is_table() || node.is_array_of_tables())
      return "unknown section [" + section + "]; the nearest is [" + nearest_names(section, sections(), 1) + "]";
    for (const JobOption& option : job_options())
      if (option.key.ends_with("." + section))
        return "'" + section + "' stands outside of a section; write it under [" + option.key.substr(0, option.key.find('.')) + "]";
    return "'" + section + "' stands outside of a section; the sections are [model], [data], [optimizer], [schedule], [train], [checkpoint], [output]";
  }

  void read_section(const std::string& section, const toml::table& table) {
    for (const auto& [key, node] : table) {
      const std::string full = section + "." + std::string(key.str());
      if (full == "optimizer.groups") {
        read_groups(key, node);
        continue;
      }
      try {
        read_key(section, std::string(key.str()), full, node);
      } catch (const UserError& problem) {
        throw error(key.source(), full + ": " + problem.what());
      }
    }
  }

  void read_key(const std::string& section, const std::string& key, const std::string& full, const toml::node& node) {
    if (full == "model.name") {
      job_.job.model.name = value_text(node, ValueForm::Word);
    } else if (section == "model") {
      job_.job.model.options[key] = value_text(node, ValueForm::List);
    } else {
      const auto option = std::find_if(job_options().begin(), job_options().end(), [&](const JobOption& row) { return row.key == full; });
      if (option == job_options().end()) throw UserError("unknown key; the nearest is " + nearest_key(section, key));
      option->set(job_, value_text(node, option->form));
      job_.given.push_back({full, name_ + ":" + std::to_string(node.source().begin.line) + ": " + full, true, ""});
    }
  }

  /// A key of that name in another section, or else the nearest one of this section.
  static std::string nearest_key(const std::string& section, const std::string& key) {
    std::vector<std::string> here;
    if (section == "optimizer") here.push_back("optimizer.groups");
    for (const JobOption& option : job_options()) {
      if (option.key.ends_with("." + key)) return option.key;
      if (option.key.starts_with(section + ".")) here.push_back(option.key);
    }
    return nearest_names(section + "." + key, here, 1);
  }

  void read_groups(const toml::key& groups, const toml::node& node) {
    const auto wrong = [&](const toml::node& found) {
      return error(groups.source(), "optimizer.groups: found " + std::string(form_text(found)) + ", wanted [[optimizer.groups]] tables");
    };
    const toml::array* array = node.as_array();
    if (!array) throw wrong(node);
    for (const toml::node& element : *array) {
      const toml::table* table = element.as_table();
      if (!table) throw wrong(element);
      ParameterGroup group;
      for (const auto& [key, value] : *table) {
        try {
          set_group_key(group, std::string(key.str()), list_text(value, wanted_text(ValueForm::List)));
        } catch (const UserError& problem) {
          throw error(key.source(), "optimizer.groups: " + std::string(key.str()) + ": " + problem.what());
        }
      }
      if (group.patterns.empty()) throw error(element.source(), "optimizer.groups: a group without patterns");
      job_.job.optimizer.groups.push_back(group);
    }
  }

  /// Names and values of the options against the zoo, while the lines are at hand. A file is looked at when it is opened.
  void check_model(const toml::table& table) const {
    const ModelChoice& model = job_.job.model;
    const auto place = [&](const std::string& key) { return table.find(key) == table.end() ? table.source() : table.find(key)->first.source(); };
    if (model.name.empty()) throw error(table.source(), "[model] has no name");
    if (is_pt2(model.name)) {
      for (const auto& [key, value] : model.options)
        if (key != "loss") throw error(place(key), "model." + key + ": " + model.name + " is a file and has only the option loss");
      return;
    }
    if (model.name.ends_with(".sg")) {
      if (!model.options.empty())
        throw error(place(model.options.begin()->first),
                    "model." + model.options.begin()->first + ": options are for models of the zoo; " + model.name + " is a file");
      return;
    }
    const auto problem_with = [&](const std::map<std::string, std::string>& options) -> std::string {
      try {
        define_model(model.name, options);
        return "";
      } catch (const UserError& problem) {
        return problem.what();
      }
    };
    const std::string problem = problem_with(model.options);
    if (problem.empty()) return;
    // The option without which another problem, or none, is left is the one at fault.
    for (const auto& [key, value] : model.options) {
      auto others = model.options;
      others.erase(key);
      if (problem_with(others) != problem) throw error(place(key), "model." + key + ": " + problem);
    }
    throw error(place("name"), "model.name: " + problem);
  }

  const std::string& name_;
  JobText& job_;
};

}  // namespace

void read_job_file(const std::string& path, JobText& job) { read_job_text(read_text(path, int64_t{1} << 20), path, job); }

void read_job_text(std::string_view content, const std::string& name, JobText& job) {
  toml::table root;
  try {
    root = toml::parse(content, name);
  } catch (const toml::parse_error& problem) {
    const toml::source_position place = problem.source().begin;
    throw UserError(name + ":" + std::to_string(place.line) + ":" + std::to_string(place.column) + ": not TOML: " + tidy_message(problem.description()));
  }
  JobReader(name, job).read(root);
}

}  // namespace stepgraph
