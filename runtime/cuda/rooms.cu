/* rooms.cu -- what products, attention and scatter work in on a GPU, and how products are computed.
 *
 * In: the most that the calls of a program ask for, told before its first step. Out: one work area,
 * and plans of all products. The one idea: everything is queued on one stream, so calls take the
 * same bytes one after the other.
 */
#include "cuda/attention_cudnn.h"
#include "cuda/matmul.h"
#include "cuda/queue.h"

static int users; /* runs that opened it */

double rt_rooms_bytes(const RtRooms *need) { return (double)rt_place_size(need->device); }

void rt_rooms_open(const RtRooms *need, void *scratch, size_t scratch_bytes)
{
    RtDevice *d = rt_device();
    RtProductsSetup setup;
    if (need->device > d->work_bytes) {
        void *const old = d->work;
        d->work = rt_place_take(need->device, "workspace of products and attention");
        d->work_bytes = need->device;
        rt_place_free(old);
    }
    users++;
    memset(&setup, 0, sizeof setup);
    setup.stream = &d->compute;
    setup.room = d->work;
    setup.room_bytes = d->work_bytes;
    setup.scratch = scratch;
    setup.scratch_bytes = scratch_bytes;
    setup.tf32 = d->tf32;
    rt_products_open(&setup);
    if (d->tell && rt_products_line())
        printf("products %s\n%s", rt_products_line(), rt_epilogues_text());
    const char *attention = rt_attention_line();
    if (d->tell && attention)
        printf("attention %s\n", attention);
}

void rt_rooms_leave(void)
{
    if (users > 0 && --users == 0)
        rt_rooms_close();
}

void rt_rooms_close(void)
{
    RtDevice *d = rt_device();
    rt_products_close();
    rt_attention_close();
    rt_place_free(d->work);
    d->work = NULL;
    d->work_bytes = 0;
    users = 0;
}

/* ---- products of bf16: by the tensor cores, whatever a checkpoint says of a CPU's ------------ */

RtProducts rt_products_choose(RtProducts stored) { return stored; }

const char *rt_products_how(RtProducts now, RtProducts stored)
{
    RT_UNUSED(now);
    RT_UNUSED(stored);
    return "by tensor cores, added up in fp32";
}

RtProducts rt_products_now(void) { return RT_PRODUCTS_UNSET; }
bool rt_products_are_native(void) { return true; }

/* ---- plans ----------------------------------------------------------------------------------- */

/* Bytes of a product's line, of the text around all, and of the line of attention. */
enum { PLAN_MOST = 640 };

size_t rt_plans_most(const RtRooms *rooms)
{
    return rooms->noted ? (size_t)(rooms->noted + 2) * PLAN_MOST : 0;
}
