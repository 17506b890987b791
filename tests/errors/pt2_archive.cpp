// SPDX-License-Identifier: Apache-2.0
// Hostile and damaged exported programs: each gives exactly one UserError that names the file, or is read as if nothing had happened where the damage
// lies in bytes that nobody reads. Nothing crashes, hangs or takes memory beyond what the file can fill.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>
#include <functional>
#include <random>
#include "stepgraph/base/disk.h"
#include "stepgraph/base/error.h"
#include "stepgraph/base/file.h"
#include "stepgraph/compile/capture/pt2/import.h"
#include "stepgraph/compile/capture/pt2/program_reader.h"
#include "tests/support/places.h"
#include "tests/support/pt2_bytes.h"

namespace stepgraph::pt2 {
namespace pt2_archive_test {

using namespace stepgraph::testing;

struct Hostile {
  std::string what;      // part of the test's output
  std::string bytes;     // of the file
  std::string expected;  // part of the message
};

/// The program and all its payloads: the whole of what an import takes out of a file.
void read_all(const std::string& bytes, const std::string& name = "test.pt2") {
  const Pt2Archive archive(to_bytes(bytes), name);
  const ExportedProgram program = read_program(archive);
  for (const auto* payloads : {&program.weights, &program.constants})
    for (const auto& [fqn, payload] : *payloads) payload_literal(archive, payload, fqn);
}

void expect_good_message(const std::string& text) {
  EXPECT_TRUE(text.starts_with("test.pt2: ")) << text;
  EXPECT_FALSE(text.ends_with('.')) << text;
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  EXPECT_LT(text.size(), 1000u) << text;
}

void expect_errors(const std::vector<Hostile>& cases) {
  for (const Hostile& c : cases) {
    SCOPED_TRACE(c.what);
    try {
      read_all(c.bytes);
      ADD_FAILURE() << "was accepted";
    } catch (const UserError& error) {
      expect_good_message(error.what());
      EXPECT_NE(std::string(error.what()).find(c.expected), std::string::npos) << error.what();
    }
  }
}

// ---- a small program: y = relu(x + w)

std::string meta(const std::string& sizes, const std::string& strides, const std::string& offset = R"({"as_int":0})", int dtype = 7, int layout = 7) {
  return R"({"dtype":)" + std::to_string(dtype) + R"(,"sizes":)" + sizes + R"(,"requires_grad":false,"device":{"type":"cpu","index":null},"strides":)" +
         strides + R"(,"storage_offset":)" + offset + R"(,"layout":)" + std::to_string(layout) + "}";
}
std::string two_meta() { return meta(R"([{"as_int":2}])", R"([{"as_int":1}])"); }

std::string config_text(const std::string& tensor_meta, const std::string& path = "weight_0", const std::string& pickle = "false") {
  return R"({"config":{"w":{"path_name":")" + path + R"(","is_param":true,"use_pickle":)" + pickle + R"(,"tensor_meta":)" + tensor_meta + "}}}";
}

std::string program_text() {
  return R"({"graph_module":{"graph":{"inputs":[{"as_tensor":{"name":"p_w"}},{"as_tensor":{"name":"x"}}],"outputs":[{"as_tensor":{"name":"relu"}}],"nodes":[)"
         R"({"target":"torch.ops.aten.add.Tensor","inputs":[{"name":"self","arg":{"as_tensor":{"name":"x"}},"kind":1},{"name":"other","arg":{"as_tensor":{"name":"p_w"}},"kind":1}],)"
         R"("outputs":[{"as_tensor":{"name":"add"}}],"metadata":{},"name":"add"},)"
         R"({"target":"torch.ops.aten.relu.default","inputs":[{"name":"self","arg":{"as_tensor":{"name":"add"}},"kind":1}],"outputs":[{"as_tensor":{"name":"relu"}}],"metadata":{},"name":"relu"}],)"
         R"("tensor_values":{"p_w":)" +
         two_meta() + R"(,"x":)" + two_meta() + R"(,"add":)" + two_meta() + R"(,"relu":)" + two_meta() +
         R"(},"sym_int_values":{},"sym_bool_values":{},"is_single_tensor_return":false},"signature":{"input_specs":[{"parameter":{"arg":{"name":"p_w"},"parameter_name":"w"}},)"
         R"({"user_input":{"arg":{"as_tensor":{"name":"x"}}}}],"output_specs":[{"user_output":{"arg":{"as_tensor":{"name":"relu"}}}}]},"module_call_graph":[]},)"
         R"("opset_version":{"aten":10},"range_constraints":{},"schema_version":{"major":8,"minor":17},"verifiers":["TRAINING"],"torch_version":"2.11.0","guards_code":[]})";
}

/// `text` with each `from` replaced; the test fails if there is none.
std::string with(std::string text, const std::string& from, const std::string& to) {
  size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  for (; at != std::string::npos; at = text.find(from, at + to.size())) text.replace(at, from.size(), to);
  return text;
}

std::vector<ZipMember> good_members(const std::string& program = program_text(), const std::string& config = config_text(two_meta()),
                                    const std::string& weight = raw<float>({1, 2})) {
  return pt2_members({{"models/model.json", program}, {"data/weights/weight_0", weight}, {"data/weights/model_weights_config.json", config}});
}
std::string with_program(const std::string& program) { return zip_text(good_members(program)); }
std::string with_config(const std::string& config, const std::string& weight = raw<float>({1, 2})) {
  return zip_text(good_members(program_text(), config, weight));
}
/// The graph's own description follows the payload's sizes, so that only the payload is wrong.
std::string with_view(const std::string& sizes, const std::string& strides, const std::string& offset = R"({"as_int":0})",
                      const std::string& weight = raw<float>({1, 2})) {
  const std::string wanted = meta(sizes, strides, offset);
  return zip_text(good_members(with(program_text(), R"("p_w":)" + two_meta(), R"("p_w":)" + wanted), config_text(wanted), weight));
}
std::string ints(const std::vector<std::string>& values) {
  std::string text;
  for (const std::string& value : values) text += (text.empty() ? "" : ",") + (R"({"as_int":)" + value + "}");
  return "[" + text + "]";
}
std::string changed(const std::function<void(std::vector<ZipMember>&)>& change) {
  std::vector<ZipMember> members = good_members();
  change(members);
  return zip_text(members);
}
/// Sets bytes of the directory entry of the member that holds `name`.
std::string directory_patched(std::string zip, const std::string& name, size_t field, const std::string& value) {
  const size_t at = zip.rfind(name);
  EXPECT_NE(at, std::string::npos);
  zip.replace(at - 46 + field, value.size(), value);
  return zip;
}

constexpr size_t weight = 4;  // its place in good_members()

struct Wide {
  uint64_t size, stored, header;
};
/// The archive with 64-bit sizes and offsets throughout; `change` may alter those of the weight.
std::string zip64_text(const std::function<void(Wide&)>& change, size_t extra_bytes = 28) {
  std::string out, directory;
  const std::vector<ZipMember> members = good_members();
  for (size_t i = 0; i < members.size(); ++i) {
    const ZipMember& m = members[i];
    Wide wide{m.data.size(), m.data.size(), out.size()};
    if (i == weight) change(wide);
    const std::string narrow(4, '\xff');
    const std::string common = little(0, 2) + little(0, 2) + little(0, 4) + little(crc32_of(m.data), 4) + narrow + narrow + little(m.name.size(), 2);
    const std::string sizes = little(wide.size, 8) + little(wide.stored, 8);
    const std::string extra = (little(0x4246, 2) + little(0, 2) + little(1, 2) + little(24, 2) + sizes + little(wide.header, 8)).substr(0, extra_bytes + 4);
    directory += "PK\1\2" + little(45, 2) + little(45, 2) + common + little(extra.size(), 2) + std::string(10, '\0') + narrow + m.name + extra;
    out += "PK\3\4" + little(45, 2) + common + little(20, 2) + m.name + little(1, 2) + little(16, 2) + sizes + m.data;
  }
  const size_t at = out.size();
  out += directory;
  const std::string counts = little(members.size(), 8) + little(members.size(), 8) + little(directory.size(), 8) + little(at, 8);
  const std::string record = "PK\6\6" + little(44, 8) + little(45, 2) + little(45, 2) + little(0, 8) + counts;
  const std::string locator = "PK\6\7" + little(0, 4) + little(out.size(), 8) + little(1, 4);
  return out + record + locator + "PK\5\6" + little(0, 4) + std::string(12, '\xff') + little(0, 2);
}

TEST(Pt2Hostile, TheProgramBeforeDamageIsRead) { EXPECT_NO_THROW(read_all(zip_text(good_members()))); }

TEST(Pt2Hostile, Containers) {
  const std::string good = zip_text(good_members());
  const size_t end = good.rfind("PK\5\6");
  const auto renamed = [](const std::string& name) { return changed([&](auto& m) { m[weight].name = name; }); };
  ZipMember bomb{"model/data/weights/weight_0", "\3", 8};
  bomb.claimed_bytes = 0xf0000000;
  expect_errors({
      {"empty", "", "is empty"},
      {"no zip", "hello, this is no archive at all", "does not begin as a zip archive"},
      {"only an end record", "PK\5\6" + std::string(18, '\0'), "does not begin as a zip archive"},
      {"cut in the middle", good.substr(0, good.size() / 2), "was the file cut?"},
      {"cut before the end record", good.substr(0, end), "was the file cut?"},
      {"a byte behind", good + "x", "was the file cut?"},
      {"another end record behind", good + good.substr(end), "the zip directory is damaged"},
      {"bytes in front", "#!/bin/sh\n" + good, "does not begin as a zip archive"},
      {"zip in front", good.substr(0, 40) + good, "the zip directory is damaged"},
      {"deflated", changed([](auto& m) { m[weight].method = 8; }), "save the program again with torch.export.save"},
      {"bomb", changed([&](auto& m) { m[weight] = bomb; }), "is compressed (method 8)"},
      {"unknown method", changed([](auto& m) { m[weight].method = 99; }), "is compressed (method 99)"},
      {"encrypted", changed([](auto& m) { m[weight].flags = 1; }), "is encrypted"},
      {"sizes differ", changed([](auto& m) { m[weight].claimed_bytes = 1 << 30; }), "claims 1073741824"},
      {"past the file", changed([](auto& m) { m[weight].claimed_bytes = m[weight].claimed_compressed = 1 << 30; }), "claims 1073741824 bytes"},
      {"into the next member", changed([](auto& m) { m[weight].claimed_bytes = m[weight].claimed_compressed = 60; }), "overlaps another one"},
      {"into the directory", changed([](auto& m) { m.back().claimed_bytes = m.back().claimed_compressed = static_cast<int64_t>(m.back().data.size()) + 30; }),
       "overlaps the zip directory"},
      {"the same bytes twice", directory_patched(good, "model/data/weights/weight_0", 42, good.substr(good.rfind("model/byteorder") - 4, 4)),
       "its header disagrees"},
      {"header far away", directory_patched(good, "model/data/weights/weight_0", 42, "\xf0\xff\xff\x7f"), "its header disagrees"},
      {"name twice", changed([](auto& m) { m.push_back(m[weight]); }), "is there twice"},
      {"symbolic link", directory_patched(good, "model/data/weights/weight_0", 38, little(0xa1ff0000u, 4)), "is a symbolic link"},
      {"device", directory_patched(good, "model/data/weights/weight_0", 38, little(0x21ff0000u, 4)), "is no ordinary file"},
      {"two folders", renamed("other/data/weights/weight_0"), "different first folders"},
      {"absolute", renamed("/model/data/weights/weight_0"), "is an absolute path"},
      {"out of the archive", renamed("model/../../weight_0"), "has a part '..'"},
      {"dot", renamed("model/./weight_0"), "has a part '.'"},
      {"backslash", renamed("model\\..\\weight_0"), "has a backslash"},
      {"zero byte", renamed(std::string("model/a\0b", 9)), "has a control character"},
      {"double slash", renamed("model//weight_0"), "has an empty part"},
      {"long name", renamed("model/" + std::string(5000, 'a')), "wanted at most 1000"},
      {"65535 members claimed", std::string(good).replace(end + 8, 4, "\xff\xff\xff\xff"), "claims 65535 members"},
      {"directory offset", std::string(good).replace(end + 16, 4, "\xff\xff\xff\x7f"), "the zip directory is damaged"},
      {"a bit of the weights", with(good, raw<float>({1, 2}), raw<float>({1, 3})), "its CRC-32 differs"},
      {"a bit of the program", with(good, "TRAINING", "TRAINIMG"), "its CRC-32 differs"},
  });
}

TEST(Pt2Hostile, ACutEndIsSeen) {
  for (const std::string& good : {zip_text(good_members()), zip64_text([](Wide&) {})})
    for (size_t cut = 1; cut <= 150; ++cut) EXPECT_THROW(read_all(good.substr(0, good.size() - cut)), UserError) << cut;
  // A comment belongs to the file, and is cut with it.
  const std::string plain = zip_text(good_members());
  const std::string commented = plain.substr(0, plain.size() - 2) + little(9, 2) + "a comment";
  EXPECT_NO_THROW(read_all(commented));
  EXPECT_THROW(read_all(commented.substr(0, commented.size() - 1)), UserError);
  EXPECT_THROW(read_all(commented + "x"), UserError);
}

TEST(Pt2Hostile, EndRecordsAgree) {
  const std::string good = zip64_text([](Wide&) {});
  const size_t end = good.rfind("PK\5\6"), record = good.rfind("PK\6\6"), locator = good.rfind("PK\6\7");
  const auto patched = [&](size_t at, const std::string& bytes) { return std::string(good).replace(at, bytes.size(), bytes); };
  EXPECT_NO_THROW(read_all(patched(end + 8, little(6, 2) + little(6, 2))));  // numbers that have room may be there too
  const std::string differ = "64-bit end records disagree";
  expect_errors({
      {"members", patched(end + 8, little(7, 2) + little(7, 2)), differ},
      {"members of the record", patched(record + 32, little(7, 8)), differ},
      {"offset", patched(end + 16, little(5, 4)), differ},
      {"size", patched(record + 40, little(uint64_t{1} << 63, 8)), "the zip directory is damaged"},
      {"place of the record", patched(locator + 8, little(UINT64_MAX, 8)), differ},
      {"size of the record", patched(record + 4, little(45, 8)), differ},
      {"no locator", patched(locator, "PK\7\7"), "no 64-bit end records"},
  });
}

TEST(Pt2Hostile, SixtyFourBits) {
  EXPECT_NO_THROW(read_all(zip64_text([](Wide&) {})));
  const auto both = [](uint64_t size) { return zip64_text([&](Wide& w) { w.size = w.stored = size; }); };
  expect_errors({
      {"no extra field", zip64_text([](Wide&) {}, 0), "has no 64-bit sizes"},
      {"extra field cut", zip64_text([](Wide&) {}, 20), "has no 64-bit sizes"},
      {"2^63 bytes", both(uint64_t{1} << 63), "claims 9223372036854775808 bytes"},
      {"all bits", both(UINT64_MAX), "claims 18446744073709551615 bytes"},
      {"end wraps", both(UINT64_MAX - 100), "the file has only"},
      {"sizes differ", zip64_text([](Wide& w) { w.size = uint64_t{1} << 62; }), "but claims 4611686018427387904"},
      {"offset wraps", zip64_text([](Wide& w) { w.header = UINT64_MAX - 20; }), "its header disagrees"},
      {"offset past the file", zip64_text([](Wide& w) { w.header = uint64_t{1} << 40; }), "its header disagrees"},
      {"another's header", zip64_text([](Wide& w) { w.header = 0; }), "its header disagrees"},
  });
}

TEST(Pt2Hostile, OtherFormats) {
  const auto only = [](const std::string& name) { return zip_text({{name, "x"}}); };
  const auto header = [](size_t member, const std::string& text) { return changed([&](auto& m) { m[member].data = text; }); };
  expect_errors({
      {"2.7 container", zip_text({{"serialized_exported_program.json", "{}"}, {"version", "8.7"}, {"extra_files/a", ""}}), "PyTorch 2.8 or older"},
      {"2.7 container, other order", zip_text({{"version", "8.7"}, {"serialized_exported_program.json", "{}"}}), "PyTorch 2.8 or older"},
      {"torch.save", only("archive/data.pkl"), "holds pickled objects"},
      {"torch.jit.save", only("m/constants.pkl"), "holds pickled objects"},
      {"any zip", only("a/b"), "has no member archive_format"},
      {"other format", header(0, "pt3"), "archive_format is 'pt3'"},
      {"other version", header(1, "1"), "archive_version is '1'"},
      {"big-endian", header(2, "big"), "byteorder is 'big'"},
      {"no program", changed([](auto& m) { m.erase(m.begin() + 3); }), "has no program"},
      {"pickled weights", changed([](auto& m) { m.back().name = "model/data/weights/model.pt"; }), "holds pickled tensors"},
      {"two programs", changed([](auto& m) {
         m.push_back(m[3]);
         m[3].name = "model/models/a.json";
         m.back().name = "model/models/b.json";
       }),
       "holds 2 programs (a, b)"},
  });
}

TEST(Pt2Hostile, Payloads) {
  const std::string big = "4611686018427387904", max = "9223372036854775807";
  expect_errors({
      {"product wraps to 0", with_view(ints({"8589934592", "2147483648"}), ints({"1", "1"})), "overflows 64 bits"},
      {"bytes wrap to 0", with_view(ints({big}), ints({"1"})), "reads elements up to 4611686018427387904"},
      {"last element wraps", with_view(ints({big, "4"}), ints({"8", big})), "overflow"},
      {"strides wrap", with_view(ints({"3"}), ints({max})), "overflow 64 bits"},
      {"offset wraps", with_view(ints({"2"}), ints({"1"}), R"({"as_int":9223372036854775807})"), "overflow 64 bits"},
      {"past the end", with_view(ints({"3"}), ints({"1"})), "reads elements up to 3 of f32, its storage has 2 (8 bytes)"},
      {"offset past the end", with_view(ints({"1"}), ints({"1"}), R"({"as_int":2})"), "reads elements up to 3"},
      {"stride past the end", with_view(ints({"2"}), ints({"2"})), "reads elements up to 3"},
      {"half an element", with_view(ints({"2"}), ints({"1"}), R"({"as_int":0})", "1234567"), "its storage has 1 (7 bytes)"},
      {"negative size", with_view(ints({"-1"}), ints({"1"})), "size -1 is negative"},
      {"negative stride", with_view(ints({"2"}), ints({"-1"}), R"({"as_int":1})"), "stride -1 is negative"},
      {"negative offset", with_view(ints({"2"}), ints({"1"}), R"({"as_int":-1})"), "storage offset -1 is negative"},
      {"rank differs", with_view(ints({"2"}), ints({"1", "1"})), "1 sizes but 2 strides"},
      {"65 dims", with_view(ints(std::vector<std::string>(65, "1")), ints(std::vector<std::string>(65, "1"))), "65 dims"},
      {"expanded to 16 GiB", with_view(ints({"4294967296"}), ints({"0"})), "would be copied to more than"},
      {"expanded to 2^62", with_view(ints({"1099511627776", "1048576"}), ints({"0", "0"})), "would be copied to more than"},
      {"expanded to 2^62 elements", with_view(ints({big}), ints({"0"})), "size overflows 64 bits"},
      {"symbolic", with_view(R"-([{"as_expr":{"expr_str":"Symbol('s1')"}}])-", ints({"1"})), "is symbolic"},
      {"no data", with_view(ints({"2"}), ints({"1"}), R"({"as_int":0})", ""), "fake or meta tensor"},
      {"sparse", with_config(config_text(meta(ints({"2"}), ints({"1"}), R"({"as_int":0})", 7, 1))), "layout 1 is not supported"},
      {"complex",
       zip_text(good_members(with(program_text(), two_meta(), meta(ints({"2"}), ints({"1"}), R"({"as_int":0})", 10)),
                             config_text(meta(ints({"2"}), ints({"1"}), R"({"as_int":0})", 10)))),
       "its type, complex64, is not supported"},
      {"bool of 64",
       zip_text(good_members(with(program_text(), two_meta(), meta(ints({"2"}), ints({"1"}), R"({"as_int":0})", 12)),
                             config_text(meta(ints({"2"}), ints({"1"}), R"({"as_int":0})", 12)), "\1\x40")),
       "bool element 1 is 64"},
      {"other type than the graph", with_config(config_text(meta(ints({"2"}), ints({"1"}), R"({"as_int":0})", 4))), "is type 7 [2] in the graph"},
      {"other sizes than the graph", with_config(config_text(meta(ints({"1"}), ints({"1"})))), "but type 7 [1] in its payload"},
      {"path out of the folder", with_config(config_text(two_meta(), "../../../etc/passwd")), "has no member"},
      {"absolute path", with_config(config_text(two_meta(), "/etc/passwd")), "has no member"},
      {"pickle", with_config(config_text(two_meta(), "weight_0", "true")), "is a pickled object"},
      {"script object", with_config(config_text("null", "custom_obj_0")), "is a pickled object"},
      {"no meta", with_config(config_text("null")), "found null, wanted an object"},
      {"no payload", with_config(R"({"config":{}})"), "'w' has no payload"},
      {"config is a list", with_config(R"({"config":[1]})"), "found a list, wanted an object"},
      {"name twice", with_config(R"({"config":{"w":1,"w":2}})"), "key 'w' is given twice"},
  });
}

TEST(Pt2Hostile, ManyViewsOfOneStorageTakeBoundedMemory) {
  std::string config;
  for (int i = 0; i < 200; ++i) {
    const std::string entry = config_text(meta(ints({"1000000", std::to_string(1 + i % 7)}), ints({"0", "1"})));
    config += (i == 0 ? "" : ",") + ("\"v" + std::to_string(i) + "\":" + entry.substr(15, entry.size() - 17));
  }
  config = R"({"config":{"w":)" + config_text(two_meta()).substr(15, config_text(two_meta()).size() - 17) + "," + config + "}}";
  expect_errors({{"200 expanded views", with_config(config, std::string(64, '\0')), "would be copied to more than"}});
}

/// The message of an import of the file, which must name it.
std::string import_error(const std::string& program) {
  const std::string path = ::testing::TempDir() + "/stepgraph_hostile_" + std::to_string(::getpid()) + ".pt2";
  write_file(path, with_program(program));
  std::string message = "no error";
  try {
    import_pt2(path, {"mse", {}, {}});
  } catch (const UserError& error) {
    message = error.what();
    EXPECT_TRUE(message.starts_with(path + ": ")) << message;
    EXPECT_EQ(message.find(path, 1), std::string::npos) << "the file is named twice: " << message;
  }
  ::unlink(path.c_str());
  return message;
}

TEST(Pt2Hostile, ImportsNameTheFile) {
  const auto import_of = [](const std::string& from, const std::string& to) { return import_error(with(program_text(), from, to)); };
  EXPECT_EQ(import_error(program_text()), "no error");
  const auto expect = [](const std::string& message, const std::string& part) { EXPECT_NE(message.find(part), std::string::npos) << message; };
  const std::string parameter = R"({"parameter":{"arg":{"name":"p_w"})", input = R"({"user_input":{"arg":{"as_tensor":{"name":"x"}}}})";
  expect(import_of(parameter, R"({"parameter":{"arg":{"name":""})"), "input_specs[0].parameter.arg.name: is empty");
  expect(import_of(input, R"({"user_input":{"arg":{"as_tensor":{"name":""}}}})"), "has an empty name");
  expect(import_of(input, R"({"user_input":{"arg":{"as_int":3}}})"), "is no tensor, the graph's input 1 is 'x'");
  const std::string output = R"({"user_output":{"arg":{"as_tensor":{"name":"relu"}}}})";
  const std::string mutation = R"({"buffer_mutation":{"arg":{"name":"relu"},"buffer_name":"none"}})";
  expect(import_of(output, mutation), "an output is of 'none', which is no parameter or buffer among the inputs");
  expect(import_of("aten.relu.default", "aten.roll.default"), "roll");
  const std::string statistics = R"({"target":"torch.ops.aten.batch_norm.default","inputs":[{"name":"running_mean","arg":{"as_tensor":{"name":"p_w"}}},)"
                                 R"({"name":"training","arg":{"as_bool":false}},{"name":"momentum","arg":{"as_float":0.5}},{"name":"eps","arg":{"as_float":0.5}},{"name":"input",)";
  expect(import_of(R"({"target":"torch.ops.aten.relu.default","inputs":[{"name":"self",)", statistics), "has only one of running_mean and running_var");
  expect(import_of("aten.relu.default", "aten.nothing.default"), "this version does not know");
}

TEST(Pt2Hostile, Programs) {
  const std::string good = program_text();
  const auto change = [&](const std::string& from, const std::string& to) { return with_program(with(good, from, to)); };
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  expect_errors({
      {"no JSON", with_program("hello"), "not valid JSON"},
      {"empty", with_program(""), "not valid JSON"},
      {"half", with_program(good.substr(0, good.size() / 2)), "not valid JSON"},
      {"text behind", with_program(good + "x"), "not valid JSON"},
      {"no UTF-8", change("TRAINING", "\xff\xfe"), "not valid JSON"},
      {"a list", with_program("[]"), "found a list, wanted an object"},
      {"deep lists", with_program(deep), "nested more than 200 deep"},
      {"deep objects",
       with_program(with(
           good, R"("verifiers":[)",
           R"("x":)" +
               [] {
                 std::string text;
                 for (int i = 0; i < 5000; ++i) text += R"({"a":)";
                 return text + "1" + std::string(5000, '}');
               }() +
               R"(,"verifiers":[)")),
       "nested more than 200 deep"},
      {"deep metadata", change(R"("metadata":{},"name":"add")", R"("metadata":{"custom":)" + deep + R"(},"name":"add")"), "nested more than 200 deep"},
      {"major 7", change(R"("major":8)", R"("major":7)"), "schema version 7 (written by PyTorch 2.11.0) is not supported, wanted 8"},
      {"major 9", change(R"("major":8)", R"("major":9)"), "schema version 9"},
      {"major is a text", change(R"("major":8)", R"("major":"8")"), "schema_version.major: found '8', wanted an integer"},
      {"integer over 64 bits", change(R"("minor":17)", R"("minor":9223372036854775808)"), "wanted an integer of 64 bits"},
      {"huge number", change(R"("minor":17)", R"("minor":1e999)"), "not valid JSON"},
      {"long number", change(R"("minor":17)", R"("minor":)" + std::string(100'000, '9')), "JSON"},
      {"key twice", change(R"("torch_version")", R"("verifiers")"), "key 'verifiers' is given twice"},
      {"no graph", change(R"("graph":{)", R"("grab":{)"), "graph_module: key 'graph' is missing"},
      {"nodes is a number", change(R"("nodes":[)", R"("nodes":7,"x":[)"), "graph_module.graph.nodes: found 7, wanted a list"},
      {"target is null", change(R"("target":"torch.ops.aten.relu.default")", R"("target":null)"),
       "graph_module.graph.nodes[1].target: found null, wanted a string"},
      {"union of two", change(R"({"as_tensor":{"name":"add"}},"kind":1)", R"({"as_tensor":{"name":"add"},"as_int":1},"kind":1)"),
       "nodes[1].inputs[0].arg: found 2 keys"},
      {"union of none", change(R"({"as_tensor":{"name":"add"}},"kind":1)", R"({},"kind":1)"), "found 0 keys"},
      {"argument of a wrong type", change(R"({"as_tensor":{"name":"add"}},"kind":1)", R"({"as_ints":[1,"2"]},"kind":1)"),
       "arg.as_ints[1]: found '2', wanted an integer"},
      {"used before defined", change(R"({"as_tensor":{"name":"x"}},"kind":1)", R"({"as_tensor":{"name":"relu"}},"kind":1)"),
       "value 'relu' is used before it is defined"},
      {"unknown value", change(R"({"as_tensor":{"name":"x"}},"kind":1)", R"({"as_sym_int":{"as_name":"n"}},"kind":1)"),
       "value 'n' is used before it is defined"},
      {"defined twice", change(R"("outputs":[{"as_tensor":{"name":"relu"}}],"metadata")", R"("outputs":[{"as_tensor":{"name":"add"}}],"metadata")"),
       "value 'add' is defined twice"},
      {"not described", change(R"("add":{"dtype")", R"("sub":{"dtype")"), "tensor 'add' is missing in tensor_values"},
      {"expression is cut", change(R"("x":{"dtype":7,"sizes":[{"as_int":2}])", R"("x":{"dtype":7,"sizes":[{"as_expr":{"expr_str":"Mul(Integer(4), Sym"}}])"),
       "expr_str: expression: "},
      {"expression is deep",
       change(R"("x":{"dtype":7,"sizes":[{"as_int":2}])", R"("x":{"dtype":7,"sizes":[{"as_expr":{"expr_str":")" + std::string(9000, '(') + R"("}}])"),
       "nested"},
      {"expression explodes",
       change(R"("x":{"dtype":7,"sizes":[{"as_int":2}])", R"("x":{"dtype":7,"sizes":[{"as_expr":{"expr_str":"(a+b+c+d+e+f+g+h)**32"}}])"),
       "size expression is too large"},
      {"division by zero", change(R"("range_constraints":{)", R"("range_constraints":{"s1//0":{"min_val":2,"max_val":null})"), "division by zero"},
      {"empty range", change(R"("range_constraints":{)", R"("range_constraints":{"s1":{"min_val":3,"max_val":2})"), "the range from 3 to 2 is empty"},
      {"input missing", change(R"({"user_input":{"arg":{"as_tensor":{"name":"x"}}}})", ""), "JSON"},
      {"inputs in another order", change(R"({"user_input":{"arg":{"as_tensor":{"name":"x"}}}})", R"({"user_input":{"arg":{"as_tensor":{"name":"add"}}}})"),
       "'add' is not the graph's input 1"},
      {"script object",
       change(R"({"user_input":{"arg":{"as_tensor":{"name":"x"}}}})", R"({"custom_obj":{"arg":{"name":"x","class_fqn":"A"},"custom_obj_name":"a"}})"),
       "an input of kind 'custom_obj' is not supported"},
      {"unknown output", change(R"({"user_output":)", R"({"token":)"), "an output of kind 'token' is not supported"},
      {"sparse value", change(R"("x":)" + two_meta(), R"("x":)" + meta(ints({"2"}), ints({"1"}), R"({"as_int":0})", 7, 2)), "layout 2 is not supported"},
  });
}

TEST(Pt2Hostile, HarmlessOddities) {
  const std::string good = program_text();
  // Newer minors, unknown keys and kinds, numbers as text, members that nobody reads.
  for (const std::string& bytes :
       {with_program(with(good, R"("minor":17)", R"("minor":99,"patch":1)")),
        with_program(
            with(good, R"("kind":1}],"outputs":[{"as_tensor":{"name":"relu"}}])",
                 R"("kind":1},{"name":"n","arg":{"as_new_kind":{}}},{"name":"f","arg":{"as_float":"-Infinity"}}],"outputs":[{"as_tensor":{"name":"relu"}}])")),
        with_program(with(good, R"("range_constraints":{)",
                          R"("range_constraints":{"4*s6":{"min_val":8,"max_val":null},"s6":{"min_val":2,"max_val":9223372036854775807})")),
        changed([](auto& m) {
          m.push_back({"model/data/sample_inputs/model.pt", "pickles, unread", 0, 0, -1, -1, 5});
        }),
        changed([](auto& m) {
          m.push_back({"model/extra/", ""});
        }),
        changed([](auto& m) {
          for (ZipMember& member : m) member.name.replace(0, 5, "archive");
        })})
    EXPECT_NO_THROW(read_all(bytes));
}

TEST(Pt2Hostile, NoFile) {
  EXPECT_THROW(Pt2Archive(std::string(testing::source_root()) + "/tests/samples/none.pt2"), UserError);
  EXPECT_THROW(Pt2Archive(std::string(testing::source_root()) + "/tests"), UserError);
  EXPECT_THROW(Pt2Archive(std::string("/dev/zero")), UserError);
}

// ---- damage done to recorded programs

class Mutator {
 public:
  explicit Mutator(uint32_t seed) : random_(seed) {}
  std::string damaged(std::string bytes) {
    switch (random_() % 8) {
      case 0: flip(bytes, 0, bytes.size(), 1); break;
      case 1: flip(bytes, directory(bytes), bytes.size(), 1 + below(3)); break;
      case 2: bytes.resize(below(bytes.size())); break;
      case 3: bytes.erase(below(bytes.size()), 1 + below(200)); break;
      case 4: number(bytes, directory(bytes), bytes.size()); break;
      case 5: number(bytes, 0, bytes.size()); break;
      case 6: bytes.insert(below(bytes.size()), bytes, below(bytes.size()), 1 + below(500)); break;
      default: text_number(bytes); break;
    }
    return bytes;
  }

 private:
  size_t below(size_t limit) { return limit == 0 ? 0 : random_() % limit; }
  static size_t directory(const std::string& bytes) { return bytes.find("PK\1\2"); }
  void flip(std::string& bytes, size_t begin, size_t end, size_t count) {
    for (size_t i = 0; i < count; ++i) bytes[begin + below(end - begin)] ^= static_cast<char>(1 << below(8));
  }
  void number(std::string& bytes, size_t begin, size_t end) {
    static const char* const extremes[] = {"\xff\xff\xff\xff", "\xff\xff\xff\x7f", "\1\0\0\x80", "\0\0\1\0"};
    bytes.replace(begin + below(end - begin - 4), 4, extremes[below(4)], 4);
  }
  /// A number in a JSON text becomes a huge one of as many digits; the checksum is mended, so that the damage is met where it counts.
  void text_number(std::string& bytes) {
    const size_t json = bytes.find("{\"graph_module\""), end = bytes.find("PK\7\10", json);
    ASSERT_NE(json, std::string::npos);
    const uint32_t before = crc32_of(bytes.substr(json, end - json));
    size_t at = json + below(end - json);
    while (at < end && (bytes[at] < '0' || bytes[at] > '9')) ++at;
    for (; at < end && bytes[at] >= '0' && bytes[at] <= '9'; ++at) bytes[at] = '9';
    const std::string old = little(before, 4), mended = little(crc32_of(bytes.substr(json, end - json)), 4);
    for (size_t place = bytes.find(old, end); place != std::string::npos; place = bytes.find(old, place + 4)) bytes.replace(place, 4, mended);
  }
  std::mt19937 random_;
};

int64_t peak_kilobytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

TEST(Pt2Hostile, MutatedSamples) {
  const std::string folder = std::string(testing::source_root()) + "/tests/samples/";
  const char* const names[] = {"mlp_gelu/model.pt2", "tiny_resnet/model.pt2", "stop_gradient/model.pt2", "lstm/model_core.pt2"};
  std::vector<std::string> sources;
  for (const char* name : names) sources.push_back(posix_disk()->read_text(folder + name));
  for (const std::string& source : sources) read_all(source);
  const int64_t before = peak_kilobytes();
  int refused = 0;
  constexpr int rounds = 400;
  for (uint32_t round = 0; round < rounds; ++round) {
    SCOPED_TRACE(round);
    Mutator mutator(round);
    const std::string bytes = mutator.damaged(sources[round % sources.size()]);
    try {
      read_all(bytes);
    } catch (const UserError& error) {
      ++refused;
      expect_good_message(error.what());
    }
  }
  // What is accepted was damaged in unread bytes: padding, times, versions, sample inputs.
  EXPECT_GT(refused, rounds / 2);
  EXPECT_LT(peak_kilobytes() - before, 300 * 1024);
}

}  // namespace pt2_archive_test
}  // namespace stepgraph::pt2
