# The Lua files that come with ckptflow, byte for byte, as a C table (engine/script/scripts.h).
#
# Included by CMakeLists.txt it names the files and sets CF_EMBEDDED_SOURCE; run as a script, when
# one of them changed, it writes that source.
if(CMAKE_SCRIPT_MODE_FILE)
  set(arrays "")
  set(table "")
  set(number 0)
  foreach(pair IN LISTS PAIRS)
    string(REGEX MATCH "^([^=]*)=(.*)$" pair "${pair}")
    set(name "${CMAKE_MATCH_1}")
    file(READ "${CMAKE_MATCH_2}" bytes HEX)
    string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
    # a NUL behind the text: no array is empty
    string(APPEND arrays "static const unsigned char file_${number}[] = {${bytes}0};\n")
    string(APPEND table "    {\"${name}\", file_${number}, sizeof file_${number} - 1},\n")
    math(EXPR number "${number} + 1")
  endforeach()
  file(WRITE "${OUT}" "#include \"scripts.h\"\n\n${arrays}\n"
    "const cf_embedded cf_embedded_files[] = {\n${table}    {NULL, NULL, 0},\n};\n")
  return()
endif()

set(CF_EMBEDDED_SOURCE ${CMAKE_BINARY_DIR}/embedded.c)
set(pairs "")
set(files "")
foreach(folder plugins/formats=formats plugins/policies=policies examples/recipes=recipes
    lua/ckptflow=lua/ckptflow)
  string(REPLACE "=" ";" folder ${folder})
  list(GET folder 0 from)
  list(GET folder 1 to)
  file(GLOB found CONFIGURE_DEPENDS ${from}/*.lua)
  foreach(file IN LISTS found)
    cmake_path(GET file FILENAME name)
    list(APPEND pairs ${to}/${name}=${file})
    list(APPEND files ${file})
  endforeach()
endforeach()
add_custom_command(OUTPUT ${CF_EMBEDDED_SOURCE}
  COMMAND ${CMAKE_COMMAND} "-DPAIRS=${pairs}" -DOUT=${CF_EMBEDDED_SOURCE}
          -P ${CMAKE_CURRENT_LIST_FILE}
  DEPENDS ${files} ${CMAKE_CURRENT_LIST_FILE}
  COMMENT "Embedding Lua files" VERBATIM)
