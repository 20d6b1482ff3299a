//! System calls that no dependency wraps. Only this module contains `unsafe`.
#![allow(unsafe_code, reason = "thin calls into libc; each block states why it is sound")]

pub(super) mod confine;
mod descriptors;
mod memory_files;

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

pub(crate) use descriptors::{receive_descriptor, send_descriptor};
pub(crate) use memory_files::{MemoryFiles, write_more};

/// Limits the unsent bytes that the kernel holds for a TCP connection (`TCP_NOTSENT_LOWAT`). Beyond the limit, writes
/// are refused, so that the backlog of a slow peer stays in the shared ring.
pub(crate) fn set_unsent_limit(socket: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    let value = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, value)
}

/// Replaces the standard input by one that is empty.
pub(crate) fn empty_standard_input() -> io::Result<()> {
    let empty = File::open("/dev/null")?;
    // SAFETY: both descriptors are open: `empty` lives across the call, and standard input is closed by nobody, because
    // the library's handle of it does not own it.
    let result = unsafe { libc::dup2(empty.as_raw_fd(), libc::STDIN_FILENO) };
    if result >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sets a numeric socket option.
fn set_option(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let length = libc::socklen_t::try_from(size_of::<libc::c_int>()).unwrap_or(4);
    // SAFETY: the descriptor is borrowed and therefore open; the option's value is a c_int that lives across the
    // call, and `length` is its size.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the value of a numeric socket option.
fn option(socket: BorrowedFd<'_>, level: libc::c_int, option: libc::c_int) -> io::Result<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut length = libc::socklen_t::try_from(size_of::<libc::c_int>()).unwrap_or(4);
    // SAFETY: the descriptor is borrowed and therefore open; `value` is a c_int that the call fills, and `length` is
    // its size.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut value).cast(), &raw mut length)
    };
    if result == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}

/// Makes the kernel fragment datagrams that are too large for a path. Other SRT implementations do the same, and this
/// server does not discover the MTU of a path.
pub(crate) fn let_fragment(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_WANT)?;
    if option(socket, libc::SOL_SOCKET, libc::SO_DOMAIN)? == libc::AF_INET6 {
        set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_WANT)?;
    }
    Ok(())
}

/// Frees the empty pages that the allocator keeps for the calling thread, and returns memory that has been free for a
/// second to the system. The allocator does this by itself only when memory is allocated, so idle threads would keep
/// hundreds of megabytes after a flood. All threads share memory outside of pages, so any thread can return it.
pub(crate) fn return_memory() {
    // SAFETY: the call takes no pointers, and may be made by any thread at any time.
    unsafe { libmimalloc_sys::mi_collect(false) }
}

/// The mode of a new file, before the umask.
const FILE_MODE: libc::mode_t = 0o644;
const FOLDER_MODE: libc::mode_t = 0o755;

/// Opens the file with this name in a folder, or creates it if `O_CREAT` is set in `flags`. A link is an error
/// (`openat` with `O_NOFOLLOW`).
pub(crate) fn open_beside(folder: BorrowedFd<'_>, name: &CStr, flags: libc::c_int) -> io::Result<OwnedFd> {
    let flags = flags | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: the descriptor is borrowed and therefore open, `name` ends with NUL, and a mode is given, which
    // O_CREAT needs.
    let opened = unsafe { libc::openat(folder.as_raw_fd(), name.as_ptr(), flags, FILE_MODE) };
    if opened < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just made this descriptor, and no other code knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(opened) })
}

/// Creates a folder in a folder (`mkdirat`).
pub(crate) fn make_folder_beside(folder: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    // SAFETY: the descriptor is borrowed and therefore open, and `name` ends with NUL.
    let result = unsafe { libc::mkdirat(folder.as_raw_fd(), name.as_ptr(), FOLDER_MODE) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Renames a file within a folder. It is an error if a file with the new name exists (`renameat2` with
/// `RENAME_NOREPLACE`).
pub(crate) fn rename_beside(folder: BorrowedFd<'_>, from: &CStr, to: &CStr) -> io::Result<()> {
    let folder = folder.as_raw_fd();
    // SAFETY: the descriptor is borrowed and therefore open, and both names end with NUL.
    let result =
        unsafe { libc::renameat2(folder, from.as_ptr(), folder, to.as_ptr(), libc::RENAME_NOREPLACE) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Renames a file within a folder. A file that has the new name is replaced (`renameat`).
pub(crate) fn replace_beside(folder: BorrowedFd<'_>, from: &CStr, to: &CStr) -> io::Result<()> {
    let folder = folder.as_raw_fd();
    // SAFETY: the descriptor is borrowed and therefore open, and both names end with NUL.
    let result = unsafe { libc::renameat(folder, from.as_ptr(), folder, to.as_ptr()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Removes a file from a folder (`unlinkat`).
pub(crate) fn remove_beside(folder: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    // SAFETY: the descriptor is borrowed and therefore open, and `name` ends with NUL.
    let result = unsafe { libc::unlinkat(folder.as_raw_fd(), name.as_ptr(), 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Moves the content of a file from `offset` on by `bytes` bytes toward the end, without copying it (`fallocate` with
/// `FALLOC_FL_INSERT_RANGE`). Both numbers must be multiples of the file system's block size.
pub(crate) fn insert_range(file: BorrowedFd<'_>, offset: u64, bytes: u64) -> io::Result<()> {
    let number = |value: u64| libc::off_t::try_from(value).unwrap_or(libc::off_t::MAX);
    // SAFETY: the descriptor is borrowed and therefore open; the rest are numbers.
    let result = unsafe {
        libc::fallocate(file.as_raw_fd(), libc::FALLOC_FL_INSERT_RANGE, number(offset), number(bytes))
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the total, the free and the usable bytes of the file system that contains `path`.
pub(crate) fn disk_space(path: &std::path::Path) -> io::Result<(u64, u64, u64)> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    let mut figures = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: `path` ends with NUL, and `figures` has the size of what the call fills.
    if unsafe { libc::statvfs(path.as_ptr(), figures.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has succeeded and has therefore filled `figures`.
    let figures = unsafe { figures.assume_init() };
    let bytes = |blocks: u64| blocks.saturating_mul(figures.f_frsize);
    Ok((bytes(figures.f_blocks), bytes(figures.f_bfree), bytes(figures.f_bavail)))
}

/// Raises the soft limit of open files to the hard limit. Returns the resulting limit.
pub(crate) fn raise_open_files() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid rlimit that the call fills.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if limit.rlim_cur < limit.rlim_max {
        let raised = libc::rlimit { rlim_cur: limit.rlim_max, rlim_max: limit.rlim_max };
        // SAFETY: `raised` is a valid rlimit that the call reads.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) } == 0 {
            limit = raised;
        }
    }
    Ok(limit.rlim_cur)
}

/// Raises the niceness of the calling thread by `by` (`setpriority`; on Linux its scope is the thread).
pub(crate) fn lower_priority(by: i32) -> io::Result<()> {
    // SAFETY: the call takes numbers only; who 0 is the calling thread.
    let result = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, by) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the processor time used by the calling thread; zero if the kernel does not report it.
pub(crate) fn thread_cpu() -> std::time::Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a timespec that the call fills and that lives across it.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    if result != 0 {
        return std::time::Duration::ZERO;
    }
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    std::time::Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), nanos)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn the_unsent_limit_is_taken_by_a_tcp_socket_and_refused_by_others() {
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(set_unsent_limit(tcp.as_fd(), 128 * 1024).is_ok());
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(set_unsent_limit(udp.as_fd(), 1).is_err());
        assert!(raise_open_files().unwrap() > 0);
    }

    #[test]
    fn datagrams_are_cut_where_a_path_needs_it() {
        for address in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
            let Ok(udp) = std::net::UdpSocket::bind(address) else { continue };
            let socket = udp.as_fd();
            set_option(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE).unwrap();
            let_fragment(socket).unwrap();
            let found = option(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER).unwrap();
            assert_eq!(found, libc::IP_PMTUDISC_WANT, "{address}");
            if address != "127.0.0.1:0" {
                let found = option(socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER).unwrap();
                assert_eq!(found, libc::IPV6_PMTUDISC_WANT, "{address}");
            }
        }
    }
}
