# SPDX-License-Identifier: Apache-2.0
# Makes a file the elements of a C array: cmake -DFROM=page.html -DTO=page.inc -P Embed.cmake
file(READ ${FROM} text HEX)
string(REGEX REPLACE "(................................)" "\\1\n" text "${text}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," text "${text}")
file(WRITE ${TO} "${text}\n")
