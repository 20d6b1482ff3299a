//! Confines a process: it gives up all privileges except computing, and reading and writing one socket.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::FromRawFd;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

/// Number of bytes of address space that the process may use in addition to those in use at the start.
const MEMORY_BYTES_MAX: u64 = 256 << 20;
/// Maximum processor time in seconds. A last resort, in case the process is not killed by its parent.
const CPU_SECONDS_MAX: u64 = 120;
/// Number of the first descriptor that is closed; all higher ones are closed, too.
const FIRST_FREE: libc::c_uint = 3;

/// Gives up the privileges of this process for good. Returns its former standard input, a socket to read and
/// write.
///
/// # Errors
/// A step was refused by the system. The process must then end.
pub(crate) fn confine() -> io::Result<File> {
    // SAFETY: the call takes numbers; the process has just begun, and owns none of the descriptors that it closes.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, FIRST_FREE, libc::c_uint::MAX, 0) };
    if closed != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call takes numbers.
    let socket = unsafe { libc::fcntl(libc::STDIN_FILENO, libc::F_DUPFD_CLOEXEC, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just made this descriptor, and no other code knows it.
    let socket = unsafe { File::from_raw_fd(socket) };
    let memory = address_space()?.saturating_add(MEMORY_BYTES_MAX);
    limit(libc::RLIMIT_AS, memory)?;
    limit(libc::RLIMIT_CPU, CPU_SECONDS_MAX)?;
    limit(libc::RLIMIT_NOFILE, 0)?;
    limit(libc::RLIMIT_NPROC, 0)?;
    limit(libc::RLIMIT_FSIZE, 0)?;
    limit(libc::RLIMIT_CORE, 0)?;
    // SAFETY: the call takes numbers.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    seccompiler::apply_filter(&filter()?).map_err(io::Error::other)?;
    Ok(socket)
}

/// Returns the bytes of address space in use.
fn address_space() -> io::Result<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm")?;
    let pages = pages.split(' ').next().and_then(|pages| pages.parse::<u64>().ok());
    // SAFETY: the call takes a number.
    let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok();
    pages
        .zip(page)
        .and_then(|(pages, page)| pages.checked_mul(page))
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Sets a limit that cannot be raised again.
fn limit(resource: libc::__rlimit_resource_t, value: u64) -> io::Result<()> {
    let limit = libc::rlimit { rlim_cur: value, rlim_max: value };
    // SAFETY: the limit lives across the call, which only reads it.
    if unsafe { libc::setrlimit(resource, &raw const limit) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Returns the filter of system calls. Calls for non-executable memory, time, random numbers, reading, writing and
/// exiting are allowed. All other calls, including those for files, networks and processes, fail with EPERM.
fn filter() -> io::Result<BpfProgram> {
    const FREE: [libc::c_long; 21] = [
        libc::SYS_read,
        libc::SYS_write,
        libc::SYS_readv,
        libc::SYS_writev,
        libc::SYS_brk,
        libc::SYS_munmap,
        libc::SYS_mremap,
        libc::SYS_madvise,
        libc::SYS_futex,
        libc::SYS_getrandom,
        libc::SYS_clock_gettime,
        libc::SYS_sched_yield,
        libc::SYS_sched_getaffinity,
        libc::SYS_rt_sigaction,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigreturn,
        libc::SYS_sigaltstack,
        libc::SYS_gettid,
        libc::SYS_getpid,
        libc::SYS_exit,
        libc::SYS_exit_group,
    ];
    let executable = u64::try_from(libc::PROT_EXEC).map_err(io::Error::other)?;
    let is_data = || {
        let operator = SeccompCmpOp::MaskedEq(executable);
        let condition = SeccompCondition::new(2, SeccompCmpArgLen::Dword, operator, 0);
        SeccompRule::new(vec![condition.map_err(io::Error::other)?]).map_err(io::Error::other)
    };
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        FREE.into_iter().map(|call| (call, Vec::new())).collect();
    rules.insert(libc::SYS_mmap, vec![is_data()?]);
    rules.insert(libc::SYS_mprotect, vec![is_data()?]);
    let refused = u32::try_from(libc::EPERM).map_err(io::Error::other)?;
    let architecture = std::env::consts::ARCH.try_into().map_err(io::Error::other)?;
    let filter = SeccompFilter::new(rules, SeccompAction::Errno(refused), SeccompAction::Allow, architecture);
    filter.and_then(TryInto::try_into).map_err(io::Error::other)
}
