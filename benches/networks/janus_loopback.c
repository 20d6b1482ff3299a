// Preloaded into Janus, which leaves out loopback interfaces: here they look like others, and nothing has to be reached over the network.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <ifaddrs.h>
#include <net/if.h>

int getifaddrs(struct ifaddrs **list) {
    int (*real)(struct ifaddrs **) = (int (*)(struct ifaddrs **))dlsym(RTLD_NEXT, "getifaddrs");
    int result = real(list);
    for (struct ifaddrs *one = result == 0 ? *list : 0; one; one = one->ifa_next) {
        one->ifa_flags &= ~(unsigned)IFF_LOOPBACK;
    }
    return result;
}
