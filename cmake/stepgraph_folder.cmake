# stepgraph_folder(FOLDER [SUBFOLDERS name...] [WITHOUT pattern...] [PUBLIC target...] [PRIVATE target...])
#
# One static library for one folder: stepgraph/compile/ops becomes the target stepgraph_ops, named after the last part.
# PUBLIC are the floors below that its headers include, PRIVATE what only its .cpp files see. A subfolder is a target of
# its own unless it is named in SUBFOLDERS. WITHOUT are regular expressions of names of files that this build leaves out.
# A folder without a .cpp is an interface target, so it can be linked already.
function(stepgraph_folder folder)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SUBFOLDERS;WITHOUT;PUBLIC;PRIVATE")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "stepgraph_folder(${folder}): unknown arguments ${arg_UNPARSED_ARGUMENTS}")
  endif()

  cmake_path(GET folder FILENAME name)
  set(target stepgraph_${name})

  set(patterns ${folder}/*.cpp)
  foreach(subfolder IN LISTS arg_SUBFOLDERS)
    list(APPEND patterns ${folder}/${subfolder}/*.cpp)
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS ${patterns})
  foreach(pattern IN LISTS arg_WITHOUT)
    list(FILTER sources EXCLUDE REGEX "/${pattern}\\.cpp$")
  endforeach()

  if(sources)
    add_library(${target} STATIC ${sources})
    set(scope PUBLIC)
    target_link_libraries(${target} PRIVATE ${arg_PRIVATE})
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_compile_features(${target} ${scope} cxx_std_20)
  target_include_directories(
    ${target} ${scope} $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(${target} ${scope} ${arg_PUBLIC})

  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  set_property(GLOBAL APPEND PROPERTY STEPGRAPH_FOLDER_TARGETS ${target})
endfunction()
