/* What a power cut leaves, for tests of the server: preloaded, it keeps at each sync of a file below POWER_CUT_ROOT the bytes of
 * the file, and at each sync of a folder the names in it, in POWER_CUT_SHADOW, by inode. Everything else is lost by the cut.
 *
 *   f.INODE   bytes of a file
 *   d.INODE   names of a folder: a line for each, INODE KIND NAME (f, d)
 *
 * POWER_CUT_LIES=file or folder: syncs of those keep nothing.
 * With POWER_CUT_AFTER=N the process ends in front of the call that would be the one behind N changes and syncs.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

static int is_below_root(int fd, char *path, size_t size)
{
    const char *root = getenv("POWER_CUT_ROOT");
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, size - 1);
    if (!root || length < 0)
        return 0;
    path[length] = 0;
    return !strncmp(path, root, strlen(root));
}

/* One change or sync is about to be made. */
static void step(int fd)
{
    static int done;
    char path[PATH_MAX];
    const char *after = getenv("POWER_CUT_AFTER");
    if (after && is_below_root(fd, path, sizeof path) && __sync_fetch_and_add(&done, 1) >= atoi(after))
        _exit(9);
}

static int keep_names(const char *folder, FILE *out)
{
    DIR *dir = opendir(folder);
    if (!dir)
        return -1;
    for (struct dirent *entry; (entry = readdir(dir));) {
        struct stat st;
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") ||
            fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW))
            continue;
        if (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode))
            fprintf(out, "%lu %c %s\n", (unsigned long)st.st_ino, S_ISDIR(st.st_mode) ? 'd' : 'f', entry->d_name);
    }
    return closedir(dir);
}

static int keep_bytes(const char *file, FILE *out)
{
    static char block[1 << 16];
    int in = open(file, O_RDONLY | O_CLOEXEC);
    if (in < 0)
        return -1;
    ssize_t count;
    while ((count = read(in, block, sizeof block)) > 0)
        fwrite(block, 1, count, out);
    return close(in);
}

static void keep(int fd)
{
    const char *shadow = getenv("POWER_CUT_SHADOW");
    char link[64], path[PATH_MAX], part[PATH_MAX], name[PATH_MAX];
    struct stat st;
    if (!shadow || !is_below_root(fd, path, sizeof path) || fstat(fd, &st))
        return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int is_folder = S_ISDIR(st.st_mode);
    const char *lies = getenv("POWER_CUT_LIES");
    if (lies && !strcmp(lies, is_folder ? "folder" : "file"))
        return;
    snprintf(name, sizeof name, "%s/%c.%lu", shadow, is_folder ? 'd' : 'f', (unsigned long)st.st_ino);
    snprintf(part, sizeof part, "%s/part", shadow);
    pthread_mutex_lock(&one_at_a_time);
    FILE *out = fopen(part, "we");
    if (out) {
        int failed = is_folder ? keep_names(link, out) : keep_bytes(link, out);
        if (fclose(out) || failed || rename(part, name))
            abort();
    }
    pthread_mutex_unlock(&one_at_a_time);
}

static int synced(const char *call, int fd)
{
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, call);
    step(fd);
    int result = real(fd), error = errno;
    if (!result)
        keep(fd);
    errno = error;
    return result;
}

int fsync(int fd)
{
    return synced("fsync", fd);
}

int fdatasync(int fd)
{
    return synced("fdatasync", fd);
}

/* An inode that was let go is not given to another file: its bytes would be taken for those of that one. */
static void hold(int folder, const char *name)
{
    int error = errno;
    if (getenv("POWER_CUT_ROOT"))
        (void)!openat(folder, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    errno = error;
}

int unlink(const char *path)
{
    hold(AT_FDCWD, path);
    return ((int (*)(const char *))dlsym(RTLD_NEXT, "unlink"))(path);
}

int unlinkat(int folder, const char *name, int flags)
{
    step(folder);
    hold(folder, name);
    return ((int (*)(int, const char *, int))dlsym(RTLD_NEXT, "unlinkat"))(folder, name, flags);
}

int rename(const char *from, const char *to)
{
    hold(AT_FDCWD, to);
    return ((int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename"))(from, to);
}

int renameat(int a, const char *from, int b, const char *to)
{
    step(a);
    hold(b, to);
    return ((int (*)(int, const char *, int, const char *))dlsym(RTLD_NEXT, "renameat"))(a, from, b, to);
}

int renameat2(int a, const char *from, int b, const char *to, unsigned flags)
{
    step(a);
    return ((int (*)(int, const char *, int, const char *, unsigned))dlsym(RTLD_NEXT, "renameat2"))(a, from, b, to, flags);
}

ssize_t write(int fd, const void *bytes, size_t count)
{
    step(fd);
    return ((ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write"))(fd, bytes, count);
}

ssize_t writev(int fd, const struct iovec *pieces, int count)
{
    step(fd);
    return ((ssize_t (*)(int, const struct iovec *, int))dlsym(RTLD_NEXT, "writev"))(fd, pieces, count);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at)
{
    step(fd);
    return ((ssize_t (*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64"))(fd, bytes, count, at);
}

int ftruncate64(int fd, off64_t length)
{
    step(fd);
    return ((int (*)(int, off64_t))dlsym(RTLD_NEXT, "ftruncate64"))(fd, length);
}
