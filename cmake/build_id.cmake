# cmake -D FOLDER=... -D OUTPUT=FILE.cpp -P build_id.cmake
#
# Writes the source of build_id() (stepgraph/backend/build_id.h): a hash of the names and contents of the sources in FOLDER.
file(GLOB_RECURSE sources RELATIVE ${FOLDER} ${FOLDER}/*.h ${FOLDER}/*.cpp)
list(SORT sources)
set(all "")
foreach(source IN LISTS sources)
  file(SHA256 ${FOLDER}/${source} hash)
  string(APPEND all "${source} ${hash}\n")
endforeach()
string(SHA256 id "${all}")
string(SUBSTRING ${id} 0 16 id)
file(WRITE ${OUTPUT} "// Written by cmake/build_id.cmake.
#include \"stepgraph/backend/build_id.h\"

namespace stepgraph {

std::string_view build_id() { return \"${id}\"; }

}  // namespace stepgraph
")
