/* test_library.cu -- opens a library by its name, and prints `open`, or why there is none.
 *
 * Usage: test_library NAME [FILE]
 */
#include "test_device.h"

#include "cuda/library.h"

int main(int argc, char **argv)
{
    void *const library = rt_library_open(argv[1], argc > 2 ? argv[2] : NULL);
    printf("%s\n", library ? "open" : rt_library_why());
    return !library;
}
