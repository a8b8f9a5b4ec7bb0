# Writes OUT, C source with the study's published tables in DIRECTORY as arrays that end in a zero
# byte: wm_published_NAME[]. The program carries them, so that it needs no file beside it.
cmake_minimum_required(VERSION 3.18)
set(source "/* Made by cmake/embed.cmake. */\n#include \"wanamaker/report/published.h\"\n")
foreach(name layers training probes claims)
  file(READ ${DIRECTORY}/published_${name}.csv bytes HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  string(REGEX REPLACE "(0x0a,)" "\\1\n" bytes "${bytes}")
  string(APPEND source "const unsigned char wm_published_${name}[] = {\n${bytes}0};\n")
endforeach()
file(CONFIGURE OUTPUT ${OUT} CONTENT "${source}" @ONLY)
