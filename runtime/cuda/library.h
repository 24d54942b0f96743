/* library.h -- libraries of NVIDIA's that are opened when a program first needs them. */
#ifndef GRADCC_CUDA_LIBRARY_H
#define GRADCC_CUDA_LIBRARY_H

/* By its name where the loader looks, then in lib64 and lib of CUDA_HOME and of /usr/local/cuda;
   or this file, unless that is NULL or "". NULL: there is none, */
void *rt_library_open(const char *name, const char *file);
const char *rt_library_why(void); /* because of this */

#endif
