// SPDX-License-Identifier: Apache-2.0
// Damaged and hostile data files: each gives exactly one UserError that names the file and says what was wrong.
#include <gtest/gtest.h>
#include <functional>
#include "stepgraph/base/disk.h"
#include "stepgraph/base/error.h"
#include "stepgraph/train/checkpoint/checkpoint.h"
#include "stepgraph/train/checkpoint/manifest.h"
#include "stepgraph/train/data/arrays.h"
#include "stepgraph/train/data/json_text.h"
#include "stepgraph/train/data/presets.h"
#include "tests/support/zip_bytes.h"

namespace stepgraph {
namespace data_malformed_test {

using namespace testing;

struct Malformed {
  std::string what;      // part of the test's output
  std::string bytes;     // of the file
  std::string expected;  // part of the message
};

void expect_one_error(const std::string& what, const std::string& file, const std::string& expected, const std::function<void()>& read) {
  SCOPED_TRACE(what);
  try {
    read();
    ADD_FAILURE() << "was accepted";
  } catch (const UserError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find(file), std::string::npos) << text;
    EXPECT_NE(text.find(expected), std::string::npos) << text;
    EXPECT_FALSE(text.ends_with('.')) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    EXPECT_LT(text.size(), 600u) << text;
  }
}

std::string deep_json(int depth) { return std::string(static_cast<size_t>(depth), '[') + std::string(static_cast<size_t>(depth), ']'); }

// ---- .npz

ZipMember member(const std::string& name, const std::string& data) { return {name, data}; }

ZipMember bomb() {
  ZipMember m{"x.npy", "\3", 8};
  m.claimed_bytes = 0xf0000000;
  return m;
}
ZipMember with(ZipMember m, const std::function<void(ZipMember&)>& change) {
  change(m);
  return m;
}

std::string good_npy() { return npy_text(npy_header("<f4", "(2,)"), raw<float>({1, 2})); }

std::vector<Malformed> npz_cases() {
  const std::string good = npz_text(good_npy());
  const auto npy = [](const std::string& descr, const std::string& shape, const std::string& data) {
    return npz_text(npy_text(npy_header(descr, shape), data));
  };
  const auto header = [](const std::string& text) { return npz_text(npy_text(text, "")); };
  std::string flipped = good;
  flipped[good.find("\x93NUMPY") + good_npy().size() - 1] ^= 1;
  const ZipMember x = member("x.npy", good_npy());
  return {
      {"empty file", "", "is empty"},
      {"not a zip", "hello, this is no archive at all", "not a zip archive"},
      {"cut in the middle", good.substr(0, good.size() / 2), "not a zip archive"},
      {"last byte missing", good.substr(0, good.size() - 1), "not a zip archive"},
      {"data bit flipped", flipped, "CRC"},
      {"not an array", zip_text({member("readme.txt", "hi")}), "wanted a name that ends in .npy"},
      {"member there twice", zip_text({x, x}), "is there twice"},
      {"encrypted", zip_text({with(x, [](ZipMember& m) { m.flags = 1; })}), "is encrypted"},
      {"unknown compression", zip_text({with(x, [](ZipMember& m) { m.method = 12; })}), "compression method 12"},
      {"stored size differs", zip_text({with(x, [](ZipMember& m) { m.claimed_bytes = 1 << 30; })}), "claims 1073741824 bytes"},
      {"compressed past the file", zip_text({with(x, [](ZipMember& m) { m.claimed_compressed = m.claimed_bytes = 1 << 30; })}), "the file only"},
      {"bomb", zip_text({bomb()}), "claims 4026531840 bytes from 1 compressed"},
      {"broken deflate", zip_text({with(x, [](ZipMember& m) { m.method = 8; })}), "'x.npy'"},
      {"empty member", npz_text(""), "too few for an npy header"},
      {"no magic", npz_text("NOTNUMPYATALL---------"), "does not begin as an npy array"},
      {"version 9", npz_text(npy_text(npy_header("<f4", "(1,)"), "1234", 9)), "npy format version 9"},
      {"header length past the member", npz_text(std::string("\x93NUMPY\1\0\xff\xff", 10) + "{}"), "npy header of 65535 bytes"},
      {"header of 4 GiB", npz_text(std::string("\x93NUMPY\2\0\xff\xff\xff\xff", 12) + "{}"), "npy header of 4294967295 bytes"},
      {"header is no dictionary", header("hello"), "wanted '{'"},
      {"header does not end", header("{'descr': '<f4', "), "wanted a quoted string"},
      {"string does not end", header("{'descr: "), "a string does not end"},
      {"descr missing", header("{'fortran_order': False, 'shape': ()}"), "descr is missing"},
      {"order missing", header("{'descr': '<f4', 'shape': ()}"), "fortran_order is missing"},
      {"shape missing", header("{'descr': '<f4', 'fortran_order': False}"), "shape is missing"},
      {"key twice", header("{'descr': '<f4', 'descr': '<f4'}"), "descr is given twice"},
      {"unknown key", header("{'descr': '<f4', 'colour': 1}"), "unknown key 'colour'"},
      {"order is a number", header("{'descr': '<f4', 'fortran_order': 1, 'shape': ()}"), "neither True nor False"},
      {"text behind the header", header("{'descr': '<f4', 'fortran_order': False, 'shape': ()} 7"), "text behind"},
      {"complex elements", npy("<c8", "(1,)", "12345678"), "'<c8' is not supported"},
      {"objects", npy("|O", "(1,)", "12345678"), "'|O' is not supported"},
      {"structured", header("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': ()}"), "structured"},
      {"negative size", npy("<f4", "(-1,)", ""), "negative"},
      {"size over 64 bits", npy("<f4", "(99999999999999999999,)", ""), "overflows 64 bits"},
      {"product wraps to 0", npy("<f4", "(8589934592, 2147483648)", ""), "overflows 64 bits"},
      {"bytes wrap to 0", npy("<f4", "(4611686018427387904,)", ""), "overflows 64 bits"},
      {"overflow hidden by a 0", npy("<f4", "(0, 8589934592, 2147483648)", ""), "overflows 64 bits"},
      {"65 dims",
       npy(
           "<f4",
           "(" +
               [] {
                 std::string s;
                 for (int i = 0; i < 65; ++i) s += "1,";
                 return s;
               }() +
               ")",
           "1234"),
       "more than 64 sizes"},
      {"shape is a list", npy("<f4", "[1]", "1234"), "wanted '('"},
      {"data too short", npy("<f4", "(3,)", "12345678"), "8 bytes of data, wanted 12 for f32[3]"},
      {"data too long", npy("<f4", "(1,)", "12345678"), "8 bytes of data, wanted 4 for f32[1]"},
      {"huge claim", npy("<f8", "(1000000000,)", "12345678"), "wanted 8000000000"},
      {"bool of 2", npy("|b1", "(2,)", "\1\2"), "bool element 1 is 2"},
      {"u8 above i64", npy("<u8", "(1,)", std::string(8, '\xff')), "18446744073709551615"},
  };
}

TEST(Malformed, Npz) {
  EXPECT_NO_THROW(parse_npz(to_bytes(npz_text(good_npy())), "bad.npz"));
  for (const Malformed& m : npz_cases()) expect_one_error(m.what, "bad.npz", m.expected, [&] { parse_npz(to_bytes(m.bytes), "bad.npz"); });
}

// ---- .safetensors

std::vector<Malformed> safetensors_cases() {
  const auto file = [](const std::string& header, const std::string& data = "") { return safetensors_text(header, data); };
  const auto tensor = [&](const std::string& fields, const std::string& data = "12345678") { return file("{\"a\":{" + fields + "}}", data); };
  return {
      {"empty", "", "too few"},
      {"seven bytes", "1234567", "too few"},
      {"header past the file", little(100, 8) + "{}", "header of 100 bytes, the file has 10"},
      {"header of 2^63", little(uint64_t{1} << 63, 8) + "{}", "at most"},
      {"header length -1", little(UINT64_MAX, 8) + "{}", "at most"},
      {"no object", file("[]"), "does not begin with '{'"},
      {"leading space", file(" {}"), "does not begin with '{'"},
      {"not JSON", file("{\"a\""), "not valid JSON at byte"},
      {"two values", file("{}{}"), "not valid JSON"},
      {"bad UTF-8", file("{\"\xff\":1}"), "not valid JSON"},
      {"deep", file("{\"a\":" + deep_json(5000) + "}"), "nested more than 16 deep"},
      {"name twice", file(R"({"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})", "1"),
       "'a' is given twice"},
      {"tensor is a number", file("{\"a\":1}"), "is a JSON number"},
      {"dtype missing", tensor(R"("shape":[2],"data_offsets":[0,8])"), "dtype is missing"},
      {"shape missing", tensor(R"("dtype":"F32","data_offsets":[0,8])"), "shape is missing"},
      {"offsets missing", tensor(R"("dtype":"F32","shape":[2])"), "data_offsets is missing"},
      {"unknown key", tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1)"), "unknown key 'x'"},
      {"unknown dtype", tensor(R"("dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8])"), "'F8_E4M3' is not supported"},
      {"dtype is a number", tensor(R"("dtype":3,"shape":[2],"data_offsets":[0,8])"), "dtype is a JSON number"},
      {"shape is a number", tensor(R"("dtype":"F32","shape":2,"data_offsets":[0,8])"), "shape is a JSON number"},
      {"negative size", tensor(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])"), "found -2"},
      {"fraction as a size", tensor(R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])"), "found 2.0"},
      {"size 2^63", tensor(R"("dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8])"), "wanted an integer from 0 to 2^63 - 1"},
      {"size 2^70", tensor(R"("dtype":"F32","shape":[1180591620717411303424],"data_offsets":[0,8])"), "wanted an integer from 0 to 2^63 - 1"},
      {"product wraps to 0", tensor(R"("dtype":"F32","shape":[8589934592,2147483648],"data_offsets":[0,0])", ""), "overflows 64 bits"},
      {"bytes wrap to 0", tensor(R"("dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0])", ""), "overflows 64 bits"},
      {"overflow hidden by a 0", tensor(R"("dtype":"F32","shape":[0,8589934592,2147483648],"data_offsets":[0,0])", ""), "overflows 64 bits"},
      {"one offset", tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0])"), "not an array of two numbers"},
      {"negative offset", tensor(R"("dtype":"F32","shape":[2],"data_offsets":[-8,0])"), "found -8"},
      {"end before begin", tensor(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])"), "ends at 0, before it begins at 8"},
      {"end past the file", tensor(R"("dtype":"F32","shape":[4],"data_offsets":[0,16])"), "ends at 16, the file has 8"},
      {"huge end", tensor(R"("dtype":"U8","shape":[9223372036854775807],"data_offsets":[0,9223372036854775807])"), "the file has 8"},
      {"range and shape differ", tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,8])"), "8 bytes of data, wanted 4 for f32[1]"},
      {"hole at the start", tensor(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])"), "belong to no tensor"},
      {"data behind the last", tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])"), "4 bytes behind the last tensor"},
      {"overlap", file(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})", "123456"), "overlaps"},
      {"hole", file(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})", "123"),
       "data bytes 1 to 2"},
      {"metadata is a list", file(R"({"__metadata__":[]})"), "__metadata__ is a JSON array"},
      {"metadata holds a number", file(R"({"__metadata__":{"a":1}})"), "'a' is a JSON number"},
      {"bool of 3", tensor(R"("dtype":"BOOL","shape":[1],"data_offsets":[0,1])", "\3"), "bool element 0 is 3"},
      {"long name", file("{\"" + std::string(5000, 'n') + "\":1}"), "..."},
  };
}

TEST(Malformed, Safetensors) {
  EXPECT_TRUE(parse_safetensors(to_bytes(safetensors_text("{}", "")), "bad.safetensors").arrays.empty());
  for (const Malformed& m : safetensors_cases())
    expect_one_error(m.what, "bad.safetensors", m.expected, [&] { parse_safetensors(to_bytes(m.bytes), "bad.safetensors"); });
}

// ---- .csv

TEST(Malformed, Csv) {
  const std::vector<Malformed> cases = {
      {"empty", "", "is empty"},
      {"blank lines only", "\n\r\n\n", "is empty"},
      {"header only", "a,b,c\n", "no row of numbers behind the header"},
      {"word", "1,2\n3,four\n", "row 2, column 2: found 'four', wanted a number"},
      {"empty field", "1,2\n3,\n", "row 2, column 2: found '', wanted a number"},
      {"number and more", "1,2\n3,4x\n", "row 2, column 2: found '4x'"},
      {"two numbers", "1,2\n3 3,4\n", "row 2, column 1: found '3 3'"},
      {"hexadecimal", "1,2\n0x10,4\n", "found '0x10'"},
      {"out of range", "1,2\n1e999,4\n", "found '1e999'"},
      {"two signs", "1,2\n+-3,4\n", "found '+-3'"},
      {"too few", "1,2\n3\n", "row 2 has 1 columns, the rows before have 2"},
      {"too many", "1,2\n3,4,5\n", "row 2 has 3 columns"},
      {"blank line inside", "1,2\n\n3,4\n", "row 2 has 1 columns"},
      {"other delimiter", "1;2\n1,2\n", "row 2 has 2 columns, the rows before have 1"},
      {"half a header", "1,b\n1,2\n", "row 1, column 2: found 'b'"},
      {"open quote", "1,2\n\"3,4\n", "row 2, column 1: a double quote is not closed"},
      {"text behind a quote", "1,2\n\"3\"4,5\n", "row 2, column 1: text behind a closing double quote"},
      {"zero byte", std::string("1,2\n3,\0", 7), "found '\\x00'"},
      {"binary",
       "\x7f"
       "ELF\1\2\3\n\4,\5",
       "bad.csv"},
      {"a long word", "1\n" + std::string(10000, 'w'), "www...'"},
  };
  for (const Malformed& m : cases) expect_one_error(m.what, "bad.csv", m.expected, [&] { parse_csv(m.bytes, "bad.csv"); });
  CsvOptions quote;
  quote.delimiter = '"';
  expect_one_error("quote as delimiter", "bad.csv", "cannot be the delimiter", [&] { parse_csv("1", "bad.csv", quote); });
}

// ---- token files and datasets

TEST(Malformed, Tokens) {
  expect_one_error("odd u16", "bad.bin", "3 bytes, wanted a multiple of 2", [] { TokenStream(to_bytes("123"), TokenFormat::U16, "bad.bin"); });
  expect_one_error("odd u32", "bad.bin", "6 bytes, wanted a multiple of 4", [] { TokenStream(to_bytes("123456"), TokenFormat::U32, "bad.bin"); });
  expect_one_error("too large", "bad.bin", "token 0 is 2147483648", [] { TokenStream(to_bytes(little(1u << 31, 4)), TokenFormat::U32, "bad.bin"); });
  expect_one_error("vocabulary", "bad.bin", "the vocabulary ends at 99",
                   [] { check_vocabulary(TokenStream(to_bytes(little(100, 2)), TokenFormat::U16, "bad.bin"), 100, "bad.bin"); });
  expect_one_error("too short", "bad.bin", "too few for one window", [] { window_dataset(TokenStream({}, TokenFormat::U16, "bad.bin"), {}, "bad.bin"); });
}

TEST(Malformed, Arrays) {
  const auto dataset = [](NamedArrays arrays) { return [arrays] { array_dataset(arrays, "bad.npz"); }; };
  expect_one_error("none", "bad.npz", "has no arrays", dataset({}));
  expect_one_error("scalar", "bad.npz", "'a' is a scalar", dataset({{"a", Literal::scalar(DType::F32, 1)}}));
  expect_one_error("rows differ", "bad.npz", "'b' has 3 rows, array 'a' has 2", dataset({{"a", Literal(DType::F32, {2})}, {"b", Literal(DType::F32, {3})}}));
  expect_one_error("twice", "bad.npz", "'a' is there twice", dataset({{"a", Literal(DType::F32, {2})}, {"a", Literal(DType::F32, {2})}}));
}

TEST(Malformed, FilesThatCannotBeOpened) {
  const std::string file = "/nowhere/at/all.x";
  expect_one_error("npz", file, "cannot open", [&] { read_npz(file); });
  expect_one_error("safetensors", file, "cannot open", [&] { read_safetensors(file); });
  expect_one_error("csv", file, "cannot open", [&] { read_csv(file); });
  expect_one_error("tokens", file, "cannot open", [&] { read_tokens(file, TokenFormat::U16); });
}

// ---- checkpoints

Manifest good_manifest() {
  Manifest manifest;
  manifest.step = 3;
  manifest.module_hash = "c0ffee";
  manifest.files = {{"state.safetensors", 80, "00"}};
  manifest.tensors = {{"a", DType::F32, {2}, "state.safetensors"}};
  return manifest;
}
std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Malformed, Manifests) {
  const std::string good = print_manifest(good_manifest());
  ASSERT_NO_THROW(parse_manifest(good, "m.json"));
  const auto changed = [&](const std::string& from, const std::string& to) { return replaced(good, from, to); };
  const std::vector<Malformed> cases = {
      {"empty", "", "not valid JSON"},
      {"cut", good.substr(0, good.size() / 2), "not valid JSON"},
      {"other JSON", "{\"a\": 1}", "is not the manifest of a checkpoint"},
      {"a list", "[]", "is not the manifest of a checkpoint"},
      {"deep", deep_json(100000), "nested more than 16 deep"},
      {"newer format", changed("\"version\": 1", "\"version\": 2"), "checkpoint format version 2, this build reads version 1"},
      {"version as text", changed("\"version\": 1", "\"version\": \"1\""), "has no format version"},
      {"key twice", changed("\"step\": 3", "\"step\": 3, \"step\": 3"), "'step' is given twice"},
      {"unknown key", changed("\"step\": 3", "\"step\": 3, \"stop\": 3"), "unknown key 'stop'"},
      {"step missing", changed("\"step\": 3,", ""), "step is missing"},
      {"negative step", changed("\"step\": 3", "\"step\": -3"), "step is not an integer from 0"},
      {"seed too large", changed("\"seed\": 0", "\"seed\": 18446744073709551616"), "seed is not an integer from 0"},
      {"cursor is a number", changed("\"cursor\": \"\"", "\"cursor\": 1"), "cursor is a JSON number"},
      {"extra is a list", changed("\"extra\": {}", "\"extra\": []"), "extra is a JSON array"},
      {"extra holds a number", changed("\"extra\": {}", "\"extra\": {\"a\": 1}"), "'a' is a JSON number"},
      {"files is an object", changed("\"files\": [", "\"files\": {}, \"tensors\": ["), "given twice"},
      {"file outside", changed("\"name\": \"state.safetensors\"", "\"name\": \"../../x\""), "'../../x' is not the name of a file in this folder"},
      {"absolute file", changed("\"name\": \"state.safetensors\"", "\"name\": \"/etc/passwd\""), "not the name of a file in this folder"},
      {"hidden file", changed("\"name\": \"state.safetensors\"", "\"name\": \".x\""), "not the name of a file in this folder"},
      {"file not listed", changed("\"file\": \"state.safetensors\"", "\"file\": \"other\""), "'other', which is not among the files"},
      {"negative bytes", changed("\"bytes\": 80", "\"bytes\": -1"), "bytes is not an integer"},
      {"unknown dtype", changed("\"f32\"", "\"f31\""), "unknown dtype 'f31'"},
      {"sizes overflow", changed("\"sizes\": [\n    2\n   ]", "\"sizes\": [8589934592, 2147483648]"), "overflows 64 bits"},
      {"negative size", changed("\"sizes\": [\n    2\n   ]", "\"sizes\": [-2]"), "a size that is not an integer"},
      {"another step, same checksum", changed("\"step\": 3", "\"step\": 4"), "its checksum does not match"},
      {"only a space more", good + " ", "its checksum does not match"},
  };
  for (const Malformed& m : cases) expect_one_error(m.what, "m.json", m.expected, [&] { parse_manifest(m.bytes, "m.json"); });
}

/// A checkpoint whose manifest vouches for whatever is in it: a liar, not an accident.
void expect_lie_found(const std::string& what, const Safetensors& content, const std::vector<ManifestTensor>& tensors, const std::string& expected) {
  FaultyDisk disk;
  const std::string path = save_checkpoint(disk, "c", {3, "", "", 0, {}, content.arrays}, {}).path;
  Manifest manifest = parse_manifest(disk.read_text(path + "/manifest.json"), "m");
  manifest.tensors = tensors;
  disk.create(path + "/manifest.json")->append(print_manifest(manifest));
  expect_one_error(what, path + "/state.safetensors", expected, [&] { load_checkpoint(disk, path); });
}

TEST(Malformed, CheckpointTables) {
  const Safetensors content{{{"a", Literal(DType::F32, {2})}, {"b", Literal(DType::F32, {3})}}, {}};
  const ManifestTensor a{"a", DType::F32, {2}, "state.safetensors"}, b{"b", DType::F32, {3}, "state.safetensors"}, c{"c", DType::F32, {1}, "state.safetensors"};
  expect_lie_found("one too many", content, {a, b, c}, "tensor 'c' is missing");
  expect_lie_found("one too few", content, {a}, "2 tensors, the manifest lists 1");
  expect_lie_found("another shape", content, {a, {"b", DType::F32, {1, 3}, "state.safetensors"}}, "'b' is f32[3], the manifest says f32[1, 3]");
  expect_lie_found("another type", content, {a, {"b", DType::I32, {3}, "state.safetensors"}}, "the manifest says i32[3]");
}

TEST(Malformed, CheckpointPlaces) {
  FaultyDisk disk;
  disk.make_directories("c/step-00000010");
  disk.create("c/file");
  expect_one_error("no manifest", "c/step-00000010/manifest.json", "is missing", [&] { load_checkpoint(disk, "c/step-00000010"); });
  expect_one_error("not there", "c/other", "is not a directory", [&] { load_checkpoint(disk, "c/other"); });
  expect_one_error("a file", "c/file", "is not a directory", [&] { load_checkpoint(disk, "c/file"); });
  expect_one_error("nothing good", "c", "has no good checkpoint: c/step-00000010/manifest.json: is missing", [&] { load_latest(disk, "c"); });
  disk.make_directories("d/step-10");  // not the spelling that a save gives
  expect_one_error("none", "d", "has no checkpoint", [&] { load_latest(disk, "d"); });
  disk.make_directories("c/step-00000020/manifest.json");
  expect_one_error("manifest is a directory", "c/step-00000020/manifest.json", "", [&] { load_checkpoint(disk, "c/step-00000020"); });
}

TEST(Malformed, Cursors) {
  for (const char* text : {"", "null", "{", "{\"a\": 1}", "{\"a\": \"1\", \"b\": 2}", "{\"a\": 1.5, \"b\": 2}", "{\"a\": 1, \"b\": 2, \"c\": 3}"})
    expect_one_error(text, "data cursor", "", [&] { parse_integers(text, {"a", "b"}, "data cursor"); });
  EXPECT_EQ(parse_integers(print_integers({{"a", 1}, {"b", INT64_MAX}}), {"b", "a"}, "x"), (std::vector<int64_t>{INT64_MAX, 1}));
}

}  // namespace data_malformed_test
}  // namespace stepgraph
