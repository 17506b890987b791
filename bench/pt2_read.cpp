// SPDX-License-Identifier: Apache-2.0
// Milliseconds to read an exported program of one gigabyte with all its weights and checksums, against reading the same bytes with cat. The archive is
// written to FILE (default: pt2_read.pt2 in the working folder) and removed at the end.
#include <sys/resource.h>
#include <unistd.h>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include "bench/measure.h"
#include "stepgraph/compile/capture/pt2/program_reader.h"

namespace {

using namespace stepgraph;

constexpr int weight_count = 250;
constexpr size_t weight_bytes = 4'000'000;

uint32_t crc_of(std::string_view data) {
  uint32_t crc = 0xffffffffu;
  for (const char c : data) {
    crc ^= static_cast<unsigned char>(c);
    for (int i = 0; i < 8; ++i) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xedb88320u : 0);
  }
  return ~crc;
}
std::string little(uint64_t value, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
  return out;
}

/// Stored members at multiples of 64 bytes.
class ZipWriter {
 public:
  explicit ZipWriter(const std::string& path) : file_(path, std::ios::binary | std::ios::trunc) {}
  void add(const std::string& name, std::string_view data, uint32_t crc) {
    const std::string common =
        little(0, 2) + little(0, 2) + little(0, 4) + little(crc, 4) + little(data.size(), 4) + little(data.size(), 4) + little(name.size(), 2);
    const uint64_t padding = (64 - (at_ + 30 + name.size() + 4) % 64) % 64;
    const std::string local = "PK\3\4" + little(20, 2) + common + little(padding + 4, 2) + name + "FB" + little(padding, 2) + std::string(padding, 'Z');
    directory_ +=
        "PK\1\2" + little(0, 2) + little(20, 2) + common + little(0, 2) + little(0, 2) + little(0, 2) + little(0, 2) + little(0, 4) + little(at_, 4) + name;
    file_ << local << data;
    at_ += local.size() + data.size();
    ++members_;
  }
  void finish() {
    file_ << directory_ << "PK\5\6" + little(0, 4) + little(members_, 2) + little(members_, 2) + little(directory_.size(), 4) + little(at_, 4) + little(0, 2);
    file_.close();
  }

 private:
  std::ofstream file_;
  std::string directory_;
  uint64_t at_ = 0, members_ = 0;
};

std::string meta() {
  return R"({"dtype":7,"sizes":[{"as_int":1000},{"as_int":1000}],"requires_grad":true,"device":{"type":"cpu","index":null},"strides":[{"as_int":1000},{"as_int":1}],)"
         R"("storage_offset":{"as_int":0},"layout":7})";
}

/// A graph that takes all weights and returns its input.
std::string program_text() {
  std::string inputs, tensors, specs;
  for (int i = 0; i < weight_count; ++i) {
    const std::string n = std::to_string(i);
    inputs += R"({"as_tensor":{"name":"p_)" + n + R"("}},)";
    tensors += R"("p_)" + n + R"(":)" + meta() + ",";
    specs += R"({"parameter":{"arg":{"name":"p_)" + n + R"("},"parameter_name":"w.)" + n + R"("}},)";
  }
  return R"({"graph_module":{"graph":{"inputs":[)" + inputs +
         R"({"as_tensor":{"name":"x"}}],"outputs":[{"as_tensor":{"name":"x"}}],"nodes":[],"tensor_values":{)" + tensors + R"("x":)" + meta() +
         R"(}},"signature":{"input_specs":[)" + specs +
         R"({"user_input":{"arg":{"as_tensor":{"name":"x"}}}}],"output_specs":[{"user_output":{"arg":{"as_tensor":{"name":"x"}}}}]},"module_call_graph":[]},)"
         R"("schema_version":{"major":8,"minor":17},"verifiers":["TRAINING"]})";
}

void write_archive(const std::string& path) {
  ZipWriter zip(path);
  const auto text = [&](const std::string& name, const std::string& data) { zip.add("model/" + name, data, crc_of(data)); };
  std::string block(weight_bytes, '\0');
  std::mt19937 random(1);
  for (size_t i = 0; i + 4 <= block.size(); i += 4) {
    const uint32_t bits = random() >> 2;
    std::memcpy(block.data() + i, &bits, 4);
  }
  const uint32_t crc = crc_of(block);
  std::string config;
  for (int i = 0; i < weight_count; ++i) {
    const std::string n = std::to_string(i);
    zip.add("model/data/weights/weight_" + n, block, crc);
    config += (i == 0 ? "" : ",") + (R"("w.)" + n + R"(":{"path_name":"weight_)" + n + R"(","is_param":true,"use_pickle":false,"tensor_meta":)" + meta() + "}");
  }
  text("data/weights/model_weights_config.json", R"({"config":{)" + config + "}}");
  text("models/model.json", program_text());
  text("archive_format", "pt2");
  text("archive_version", "0");
  text("byteorder", "little");
  zip.finish();
}

int64_t read_archive(const std::string& path) {
  const pt2::Pt2Archive archive(path);
  const pt2::ExportedProgram program = pt2::read_program(archive);
  int64_t elements = 0;
  std::vector<Literal> weights;
  for (const auto& [name, payload] : program.weights) {
    weights.push_back(pt2::payload_literal(archive, payload, name));
    elements += weights.back().count();
  }
  return elements;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string path = argc > 1 ? argv[1] : "pt2_read.pt2";
  const int repeats = argc > 2 ? std::max(1, std::atoi(argv[2])) : 9;
  write_archive(path);
  const std::string cat = "cat '" + path + "' > /dev/null";
  std::vector<double> reading, copying;
  int failed = std::system(cat.c_str());
  int64_t elements = 0;
  for (int i = 0; i < repeats; ++i) {
    copying.push_back(bench::milliseconds([&] { failed |= std::system(cat.c_str()); }));
    reading.push_back(bench::milliseconds([&] { elements = read_archive(path); }));
  }
  ::unlink(path.c_str());
  if (failed != 0 || elements != weight_count * static_cast<int64_t>(weight_bytes / 4)) return 1;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const bench::Spread ours = bench::spread(reading), theirs = bench::spread(copying);
  bench::print_head("an exported program of 1 GB, file in memory");
  bench::print_row("  read, checked, 250 weights", ours);
  bench::print_row("  cat to /dev/null", theirs);
  std::printf("  %-42s %10.2f %10.2f\n", "ratio", ours.minimum / theirs.minimum, ours.median / theirs.median);
  std::printf("  %-42s %10.2f\n", "peak resident bytes / bytes of weights",
              1024.0 * static_cast<double>(usage.ru_maxrss) / (weight_count * static_cast<double>(weight_bytes)));
}
