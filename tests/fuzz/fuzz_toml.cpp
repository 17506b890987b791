// SPDX-License-Identifier: Apache-2.0
// Random text as a job file: one UserError with file and line, or a job whose checks end in nothing worse than a UserError.
#include <string>
#include <string_view>

#include "stepgraph/base/error.h"
#include "tools/job_options.h"

using namespace stepgraph;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  JobText job;
  try {
    read_job_text({reinterpret_cast<const char*>(data), size}, "fuzz.toml", job);
  } catch (const UserError& error) {
    const std::string text = error.what();
    SG_CHECK(text.starts_with("fuzz.toml:") && text.size() > 11 && text[10] >= '1' && text[10] <= '9', text);
    SG_CHECK(text.find('\n') == std::string::npos, text);
    return 0;
  }
  try {
    check(job.job);
  } catch (const UserError&) {
  }
  return 0;
}
