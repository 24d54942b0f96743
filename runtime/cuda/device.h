/* device.h -- what the files of cuda/ know of each other: the one GPU of the process.
 *
 * Opened by the first call of rt_device; what is wrong with driver, GPU or libraries ends the
 * program there, with exit code 1. All work is queued on the streams of the device: compute, on
 * which everything of a step goes in order; copy, on which samples come from the host.
 */
#ifndef GRADCC_DEVICE_H
#define GRADCC_DEVICE_H

#include "run.h"

#include "rt_cuda.h"

enum { RT_DEVICE_ALIGN = 256 }; /* of buffers in its memory */

struct RtDevice {
    int number;             /* cuda:N */
    char name[256];         /* "NVIDIA H200" */
    int major, minor;       /* compute capability */
    int processors;         /* streaming multiprocessors */
    size_t bytes;           /* of its memory */
    size_t shared;          /* bytes of shared memory that a block may ask for */
    int driver, runtime;    /* versions, 12040 = 12.4 */
    RtStream compute, copy; /* where the work goes */
    void *work;             /* what products, attention and scatter work in, one at a time */
    size_t work_bytes;
    bool sync; /* RT_CUDA_SYNC=1: wait behind each launch */
    bool tf32; /* --tf32 */
    bool tell; /* lines before the first step */
};

/* Before the first call of rt_device. number -1: that of this process on its host, local_rank,
   which is below 0 where it is alone. */
void rt_device_choose(int number, int local_rank, bool tf32);
RtDevice *rt_device(void);
/* Work space for what is queued on the stream next: until the call after it. Planned by .rooms, so
   more than that is a mistake of the program, and ends it. */
void *rt_device_work(RtStream *stream, size_t bytes);

/* Every call of the CUDA runtime: one that fails ends the program with a message that names the
   line of the model (of the stream, which may be NULL), the call, the error and a hint. */
#define RT_CUDA_CALL(stream, call) rt_cuda_check(stream, #call, call)
void rt_cuda_check(const RtStream *stream, const char *call, cudaError_t error);
/* The name of a kernel as RT_LAUNCH has it, without what stands for its types: its length from
   *name on. */
int rt_kernel_name(const char **name);
/* profile.cu: the time of what is queued between the two, under RT_CUDA_PROFILE=FILE. */
void rt_profile_begin(RtStream *stream);
void rt_profile_end(RtStream *stream, const char *kernel);
/* Waits for all work on the stream, or until the event; failures of what was queued are told as
   such. Of several ranks, it looks whether exchanges have failed, too. */
void rt_stream_wait(RtStream *stream);
void rt_event_wait(const RtStream *stream, cudaEvent_t event);

#endif
