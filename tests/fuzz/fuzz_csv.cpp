// SPDX-License-Identifier: Apache-2.0
// Random .csv text under every header option: one UserError that names the file, or a table of the size that it says.
#include "stepgraph/base/error.h"
#include "stepgraph/train/data/arrays.h"

using namespace stepgraph;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const auto header : {CsvOptions::Header::Auto, CsvOptions::Header::Present, CsvOptions::Header::Absent})
    for (const char delimiter : {',', '\t'}) {
      try {
        const CsvTable table = parse_csv(text, "fuzz.csv", {delimiter, header});
        SG_CHECK(table.values.rank() == 2 && table.values.sizes()[0] > 0);
        SG_CHECK(table.columns.empty() || static_cast<int64_t>(table.columns.size()) == table.values.sizes()[1]);
      } catch (const UserError& error) {
        SG_CHECK(std::string(error.what()).starts_with("fuzz.csv: "), error.what());
      }
    }
  return 0;
}
