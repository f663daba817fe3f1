// Integer types by width, for kernels and for the generated bindings alike (no libc header is needed or included).
#pragma once
typedef signed char        i8;
typedef unsigned char      u8;
typedef short              i16;
typedef unsigned short     u16;
typedef int                i32;
typedef unsigned int       u32;
typedef long long          i64;
typedef unsigned long long u64;
