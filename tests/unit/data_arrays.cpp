// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>
#include <bit>
#include <cmath>
#include <filesystem>
#include "stepgraph/base/error.h"
#include "stepgraph/base/file.h"
#include "stepgraph/train/data/arrays.h"
#include "tests/support/zip_bytes.h"

namespace stepgraph {
namespace data_arrays_test {

using namespace testing;

NamedArrays every_type() {
  const std::vector<double> reals{0, -0.0, 1.5, -2.25, INFINITY, 0.1};
  const std::vector<double> small{0, 1, 2, 3, 100, 127};
  NamedArrays arrays;
  for (const DType dtype : {DType::BF16, DType::F16, DType::F32, DType::F64})
    arrays.emplace_back(std::string(name(dtype)), Literal::from_doubles(dtype, {2, 3}, reals));
  for (const DType dtype : {DType::I32, DType::I64, DType::I8, DType::U8})
    arrays.emplace_back(std::string(name(dtype)), Literal::from_doubles(dtype, {3, 2}, small));
  arrays.emplace_back("mask", Literal::from_doubles(DType::Bool, {4}, std::vector<double>{1, 0, 0, 1}));
  arrays.emplace_back("nothing", Literal(DType::F32, {0, 5}));
  arrays.emplace_back("scalar", Literal::integer(DType::I64, -7));
  std::sort(arrays.begin(), arrays.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return arrays;
}

Literal npz_x(const std::string& npy) { return parse_npz(to_bytes(npz_text(npy)), "a.npz").at(0).second; }

TEST(Npz, EveryTypeReadsBackAndBf16BecomesF32) {
  NamedArrays wanted = every_type();
  const NamedArrays read = parse_npz(print_npz(wanted), "a.npz");
  for (auto& [array_name, value] : wanted)
    if (value.dtype() == DType::BF16) value = value.converted(DType::F32);
  EXPECT_EQ(read, wanted);
}

TEST(Npz, SameArraysInAnyOrderGiveSameBytes) {
  NamedArrays arrays = every_type();
  const auto bytes = print_npz(arrays);
  std::reverse(arrays.begin(), arrays.end());
  EXPECT_EQ(print_npz(arrays), bytes);
}

TEST(Npz, NoArraysAreAnArchiveToo) { EXPECT_TRUE(parse_npz(print_npz({}), "a.npz").empty()); }

TEST(Npz, FortranOrderIsTransposed) {
  // Column-major 2 x 3: columns (1, 2), (3, 4), (5, 6).
  const Literal x = npz_x(npy_text(npy_header("<f4", "(2, 3)", "True"), raw<float>({1, 2, 3, 4, 5, 6})));
  EXPECT_EQ(x, Literal::from_doubles(DType::F32, {2, 3}, std::vector<double>{1, 3, 5, 2, 4, 6}));
  std::vector<double> in(24), out(24);
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 3; ++j)
      for (int k = 0; k < 4; ++k) in[i + 2 * j + 6 * k] = out[12 * i + 4 * j + k] = 100 * i + 10 * j + k;
  EXPECT_EQ(npz_x(npy_text(npy_header("<f8", "(2, 3, 4)", "True"), raw(in))), Literal::from_doubles(DType::F64, {2, 3, 4}, out));
}

TEST(Npz, NarrowAndUnsignedTypesAreWidened) {
  const auto integers = [](DType dtype, std::vector<int64_t> values) { return Literal::from_integers(dtype, {static_cast<int64_t>(values.size())}, values); };
  EXPECT_EQ(npz_x(npy_text(npy_header("<u2", "(2,)"), raw<uint16_t>({65535, 1}))), integers(DType::I32, {65535, 1}));
  EXPECT_EQ(npz_x(npy_text(npy_header("<i2", "(2,)"), raw<int16_t>({-32768, 1}))), integers(DType::I32, {-32768, 1}));
  EXPECT_EQ(npz_x(npy_text(npy_header("<u4", "(1,)"), raw<uint32_t>({4294967295u}))), integers(DType::I64, {4294967295}));
  EXPECT_EQ(npz_x(npy_text(npy_header("<u8", "(1,)"), raw<uint64_t>({INT64_MAX}))), integers(DType::I64, {INT64_MAX}));
}

TEST(Npz, BigEndianIsSwapped) {
  EXPECT_EQ(npz_x(npy_text(npy_header(">i4", "(2,)"), std::string("\0\0\1\2\377\377\377\376", 8))),
            Literal::from_integers(DType::I32, {2}, std::vector<int64_t>{258, -2}));
  EXPECT_EQ(npz_x(npy_text(npy_header(">u2", "(1,)"), std::string("\1\2", 2))), Literal::from_integers(DType::I32, {1}, std::vector<int64_t>{258}));
}

TEST(Npz, VersionsTwoAndThreeAndDeflatedMembers) {
  const Literal wanted = Literal::from_doubles(DType::F64, {2}, std::vector<double>{3, 4});
  for (const int version : {2, 3}) EXPECT_EQ(npz_x(npy_text(npy_header("<f8", "(2,)"), raw<double>({3, 4}), version)), wanted);
  const std::string npy = npy_text(npy_header("<f8", "(2L,)"), raw<double>({3, 4}));
  ZipMember member{"x.npy", deflated_plainly(npy), 8};
  member.claimed_bytes = static_cast<int64_t>(npy.size());
  member.crc = crc32_of(npy);
  EXPECT_EQ(parse_npz(to_bytes(zip_text({member})), "a.npz").at(0).second, wanted);
}

TEST(Safetensors, EveryTypeAndMetadataReadBack) {
  const Safetensors content{every_type(), {{"format", "pt"}, {"note", "a \"quoted\" ü"}}};
  EXPECT_EQ(parse_safetensors(print_safetensors(content), "a.safetensors"), content);
}

TEST(Safetensors, WritingIsCanonicalAndAligned) {
  Safetensors content{every_type(), {}};
  const auto bytes = print_safetensors(content);
  std::reverse(content.arrays.begin(), content.arrays.end());
  EXPECT_EQ(print_safetensors(content), bytes);
  // The data of an f64 after that of a u8 must stay aligned to 8 bytes: the header is, and wide types come first.
  const auto at = [&](std::string_view text) {
    const std::string_view all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return std::stoll(std::string(all.substr(all.find("data_offsets\":[", all.find(text)) + 15)));
  };
  EXPECT_EQ(std::to_integer<int>(bytes[0]) % 8, 0);
  EXPECT_LT(at("\"f64\""), at("\"f32\""));
  EXPECT_LT(at("\"i32\""), at("\"bf16\""));
  EXPECT_LT(at("\"f16\""), at("\"i8\""));
}

TEST(Safetensors, AFileOfAnotherWriterIsRead) {
  // Entries in any order, spaces behind the header, zero-size tensors between others.
  const std::string header = R"({"b":{"data_offsets":[4,4],"dtype":"F32","shape":[0]},"a":{"shape":[2],"dtype":"I8","data_offsets":[4,6]},)"
                             R"("c":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}   )";
  const Safetensors content = parse_safetensors(to_bytes(safetensors_text(header, raw<float>({2.5f}) + "\1\2")), "a.safetensors");
  EXPECT_EQ(*find_array(content.arrays, "a"), Literal::from_integers(DType::I8, {2}, std::vector<int64_t>{1, 2}));
  EXPECT_EQ(*find_array(content.arrays, "c"), Literal::scalar(DType::F32, 2.5));
  EXPECT_EQ(find_array(content.arrays, "b")->sizes(), Sizes{0});
  EXPECT_EQ(find_array(content.arrays, "d"), nullptr);
}

TEST(Files, WrittenOnesReadBackAndAMissingOneIsTheUsersError) {
  const auto folder = std::filesystem::temp_directory_path() / ("stepgraph_data_arrays_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const NamedArrays arrays = every_type();
  write_safetensors(folder / "a.safetensors", {arrays, {}});
  EXPECT_EQ(read_safetensors(folder / "a.safetensors").arrays, arrays);
  write_npz(folder / "a.npz", arrays);
  EXPECT_EQ(read_npz(folder / "a.npz").size(), arrays.size());
  EXPECT_THROW(read_npz(folder / "b.npz"), UserError);
  EXPECT_THROW(read_csv(folder.string()), UserError);
  std::filesystem::remove_all(folder);
}

TEST(Csv, HeaderIsFoundOnlyWhereNothingIsANumber) {
  const CsvTable with = parse_csv("a, b\n1,2\n3,4\n", "t.csv");
  EXPECT_EQ(with.columns, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(with.values, Literal::from_doubles(DType::F64, {2, 2}, std::vector<double>{1, 2, 3, 4}));
  EXPECT_TRUE(parse_csv("1,2\n3,4", "t.csv").columns.empty());
  EXPECT_THROW(parse_csv("1,b\n3,4", "t.csv"), UserError);
  CsvOptions options;
  options.header = CsvOptions::Header::Present;
  EXPECT_EQ(parse_csv("1,2\n3,4", "t.csv", options).values.sizes(), (Sizes{1, 2}));
}

TEST(Npz, ArraysOfOtherElementsStandBesideThoseThatAreRead) {
  const std::string words = npy_text(npy_header("<U3", "(1,)"), std::string(12, 'a')), parts = npy_text(npy_header("<c16", "(2,)"), std::string(32, '\0'));
  const std::string records = npy_text("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }\n", raw<float>({1}));
  const std::string objects = npy_text(npy_header("|O", "(1,)"), "pickle"), numbers = npy_text(npy_header("<f4", "(2,)"), raw<float>({1, 2}));
  const std::vector<std::byte> bytes =
      to_bytes(zip_text({{"complex.npy", parts}, {"records.npy", records}, {"words.npy", words}, {"x.npy", numbers}, {"objects.npy", objects}}));
  std::map<std::string, std::string> left_out;
  const NamedArrays read = parse_npz(bytes, "a.npz", &left_out);
  ASSERT_EQ(read.size(), 1u);
  EXPECT_EQ(read[0].first, "x");
  EXPECT_EQ(read[0].second.to_doubles(), (std::vector<double>{1, 2}));
  ASSERT_EQ(left_out.size(), 4u);
  EXPECT_NE(left_out.at("words").find("a.npz: member 'words.npy': npy header: element type '<U3' is not supported"), std::string::npos) << left_out.at("words");
  EXPECT_THROW(parse_npz(bytes, "a.npz"), UserError);
  // What is damaged is not left out.
  EXPECT_THROW(parse_npz(to_bytes(npz_text(npy_text("{'descr': '<f4'}", ""))), "a.npz", &left_out), UserError);
}

TEST(Csv, FormsOfNumbersAndLines) {
  const CsvTable table = parse_csv("\xef\xbb\xbf 1.5e3 , +2 ,\"-3\"\r\n.5,5.,\" 6\"\r\n\r\n\n", "t.csv");
  EXPECT_EQ(table.values.sizes(), (Sizes{2, 3}));
  EXPECT_EQ(table.values.to_doubles(), (std::vector<double>{1500, 2, -3, 0.5, 5, 6}));
  CsvOptions tab;
  tab.delimiter = '\t';
  EXPECT_EQ(parse_csv("1\t \"2\"\n3\t4", "t.csv", tab).values.to_doubles(), (std::vector<double>{1, 2, 3, 4}));
  EXPECT_TRUE(std::isnan(parse_csv("nan", "t.csv", {',', CsvOptions::Header::Absent}).values.at(0)));
}

TEST(Csv, NumbersAreRoundedAsTheLibraryDoes) {
  std::string text;
  std::vector<double> wanted;
  const auto add = [&](const std::string& number) {
    text += number + "\n";
    wanted.push_back(std::stod(number));
  };
  for (const char* number : {"0", "-0", "7", "-12", "123456789012345", "9007199254740992", "9007199254740993", "999999999999999.9", "0.1", "-0.30000000000001",
                             "1.", ".5", "-.5", "0.000000000001", "1e-3", "12345678901234567890", "0.12345678901234567", "4.35", "-1e300"})
    add(number);
  uint64_t state = 1;
  for (int i = 0; i < 3000; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const uint64_t digits = state >> 12;
    add(std::to_string(digits >> (state % 40)) + "." + std::to_string(digits % 1000000));
  }
  const CsvTable table = parse_csv(text, "t.csv", {',', CsvOptions::Header::Absent});
  ASSERT_EQ(table.values.count(), static_cast<int64_t>(wanted.size()));
  for (size_t i = 0; i < wanted.size(); ++i)
    EXPECT_EQ(std::bit_cast<uint64_t>(table.values.at(static_cast<int64_t>(i))), std::bit_cast<uint64_t>(wanted[i])) << i;
}

TEST(Csv, AFileOfManyBlocksIsItsText) {
  const auto folder = std::filesystem::temp_directory_path() / ("stepgraph_data_csv_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  std::string text = "a,b,c\r\n";
  for (int i = 0; i < 60000; ++i) text += std::to_string(i) + ", " + std::to_string(i % 7) + ".25,\"-1\"\r\n";
  text += "\r\n\n";
  write_file((folder / "a.csv").string(), text);
  const CsvTable table = read_csv(folder / "a.csv");
  EXPECT_EQ(table.columns, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(table.values, parse_csv(text, "a.csv").values);
  EXPECT_EQ(table.values.sizes(), (Sizes{60000, 3}));
  EXPECT_EQ(table.values.at(59999 * 3), 59999);
  std::filesystem::remove_all(folder);
}

}  // namespace data_arrays_test
}  // namespace stepgraph
