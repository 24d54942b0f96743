/* cm.h -- cmocka with the headers it wants first. */
#ifndef GRADCC_TEST_CM_H
#define GRADCC_TEST_CM_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#endif
