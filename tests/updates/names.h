/* names.h -- in front of the files of runtime/cuda: what the CPU has too gets names of its own, so
 * that both can be linked into one program and compared. */
#define rt_finite_and_norm   gpu_finite_and_norm
#define rt_clip_value        gpu_clip_value
#define rt_clip              gpu_clip
#define rt_update            gpu_update
#define rt_update_lamb       gpu_update_lamb
#define rt_update_adafactor  gpu_update_adafactor
#define rt_update_muon       gpu_update_muon
#define rt_params_copy       gpu_params_copy
#define rt_ema_start         gpu_ema_start
#define rt_ema_swap          gpu_ema_swap
#define rt_optim_place_bytes gpu_optim_place_bytes
#define rt_optim_open        gpu_optim_open
#define rt_optim_close       gpu_optim_close
#define rt_place_size        gpu_place_size
#define rt_place_alloc       gpu_place_alloc
#define rt_place_free        gpu_place_free
#define rt_place_put         gpu_place_put
#define rt_place_get         gpu_place_get
#define rt_place_window      gpu_place_window
