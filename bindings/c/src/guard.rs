//! The border to C: pointers become references or are refused, panics become results, times become instants.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// The result of a call.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MillstreamResult {
    /// Done.
    Ok = 0,
    /// There is nothing more at present.
    Nothing = 1,
    /// A pointer is NULL that must not be.
    Null = -1,
    /// An argument is invalid.
    Argument = -2,
    /// There is no such connection or session, or it is not in the state for this call.
    State = -3,
    /// A queue is full; the data was not taken.
    Full = -4,
    /// The library failed; the handle can only be freed.
    Panic = -5,
}

/// A machine behind a handle.
#[derive(Debug)]
pub(crate) struct Guarded<T> {
    machine: T,
    clock: Clock,
    is_poisoned: bool,
}

/// Instants of a clock whose origin only the caller knows.
#[derive(Debug)]
struct Clock {
    begin: Instant,
    begin_us: u64,
}

impl<T> Guarded<T> {
    /// Makes a machine at a time of the caller's clock.
    pub(crate) fn new(now_us: u64, make: impl FnOnce(Instant) -> Option<T>) -> Option<Box<Self>> {
        let clock = Clock { begin: Instant::now(), begin_us: now_us };
        let machine = catch_unwind(AssertUnwindSafe(|| make(clock.begin))).ok()??;
        Some(Box::new(Self { machine, clock, is_poisoned: false }))
    }
}

/// Compiles only if handles of the type may move between threads, as the header promises.
pub(crate) const fn assert_send<T: Send>() {}

/// Frees a handle. A panic goes no further.
///
/// # Safety
/// `handle` is null, or came from `Box::into_raw`, was not freed, and is in use by no call.
pub(crate) unsafe fn free<T>(handle: *mut Guarded<T>) {
    if handle.is_null() {
        return;
    }
    // SAFETY: the caller guarantees that the handle is that of a box, and is not used any more.
    let owned = unsafe { Box::from_raw(handle) };
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(owned))) {
        // Dropping it could panic again.
        std::mem::forget(panic);
    }
}

/// Calls a machine at a time, unless it has failed before.
///
/// # Safety
/// `handle` is null, or was returned by `new`, was not freed, and is in use by no other call.
pub(crate) unsafe fn call<T>(
    handle: *mut Guarded<T>,
    now_us: u64,
    verb: impl FnOnce(&mut T, Instant) -> MillstreamResult,
) -> MillstreamResult {
    // SAFETY: the caller guarantees that a handle that is not null is valid and not shared.
    let Some(guarded) = (unsafe { handle.as_mut() }) else { return MillstreamResult::Null };
    if guarded.is_poisoned {
        return MillstreamResult::Panic;
    }
    let since = Duration::from_micros(now_us.saturating_sub(guarded.clock.begin_us));
    let Some(now) = guarded.clock.begin.checked_add(since) else { return MillstreamResult::Argument };
    let machine = &mut guarded.machine;
    catch_unwind(AssertUnwindSafe(|| verb(machine, now))).unwrap_or_else(|_| {
        guarded.is_poisoned = true;
        MillstreamResult::Panic
    })
}

/// The next deadline on the caller's clock, or `u64::MAX` if there is none.
///
/// # Safety
/// As for [`call`].
pub(crate) unsafe fn deadline<T>(
    handle: *mut Guarded<T>,
    poll: impl FnOnce(&mut T) -> Option<Instant>,
) -> u64 {
    let mut at = None;
    // SAFETY: the same contract.
    unsafe {
        call(handle, 0, |machine, _| {
            at = poll(machine);
            MillstreamResult::Ok
        });
    }
    // SAFETY: the same contract; nothing else refers to the handle any more.
    let Some((at, guarded)) = at.zip(unsafe { handle.as_ref() }) else { return u64::MAX };
    let micros = at.saturating_duration_since(guarded.clock.begin).as_nanos().div_ceil(1000);
    guarded.clock.begin_us.saturating_add(u64::try_from(micros).unwrap_or(u64::MAX))
}

/// Bytes of the caller. `None` if the pointer is null and the length is not 0.
///
/// # Safety
/// If `data` is not null, `length` bytes can be read there for as long as the result is used.
pub(crate) unsafe fn bytes<'a>(data: *const u8, length: usize) -> Option<&'a [u8]> {
    if length == 0 {
        return Some(&[]);
    }
    if data.is_null() || isize::try_from(length).is_err() {
        return None;
    }
    // SAFETY: the pointer is not null, the length is possible, and the caller guarantees the bytes.
    Some(unsafe { std::slice::from_raw_parts(data, length) })
}

/// Text of the caller in UTF-8. `None` as for [`bytes`], or if it is no text.
///
/// # Safety
/// As for [`bytes`].
pub(crate) unsafe fn text<'a>(data: *const u8, length: usize) -> Option<&'a str> {
    // SAFETY: the same contract.
    std::str::from_utf8(unsafe { bytes(data, length) }?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_poisons_the_handle_and_goes_no_further() {
        let mut guarded = Guarded::new(5, |_| Some(0)).unwrap();
        let handle: *mut Guarded<i32> = &mut *guarded;
        // SAFETY: the handle is that of a box that lives, and no other reference is in use.
        unsafe {
            assert_eq!(call(handle, 5, |_, _| MillstreamResult::Ok), MillstreamResult::Ok);
            assert_eq!(call(handle, 5, |_, _| panic!("on purpose")), MillstreamResult::Panic);
            assert_eq!(call(handle, 5, |_, _| MillstreamResult::Ok), MillstreamResult::Panic);
            assert_eq!(deadline(handle, |_| Some(Instant::now())), u64::MAX);
            assert_eq!(
                call::<i32>(std::ptr::null_mut(), 5, |_, _| MillstreamResult::Ok),
                MillstreamResult::Null
            );
        }
        assert!(Guarded::<i32>::new(0, |_| panic!("on purpose")).is_none());
    }

    #[test]
    fn a_panic_while_a_handle_is_freed_goes_no_further() {
        struct Breaks;
        impl Drop for Breaks {
            fn drop(&mut self) {
                panic!("on purpose");
            }
        }
        let handle = Box::into_raw(Guarded::new(5, |_| Some(Breaks)).unwrap());
        // SAFETY: the handle is that of a box, and is freed once.
        unsafe {
            free(handle);
            free::<Breaks>(std::ptr::null_mut());
        }
    }

    #[test]
    fn times_go_to_the_clock_of_the_caller_and_back() {
        let mut guarded = Guarded::new(1_000_000, Some).unwrap();
        let handle: *mut Guarded<Instant> = &mut *guarded;
        // SAFETY: as above.
        unsafe {
            let mut later = None;
            call(handle, 1_000_250, |_, now| {
                later = Some(now);
                MillstreamResult::Ok
            });
            assert_eq!(deadline(handle, |_| later), 1_000_250);
            // A time before the beginning is the beginning.
            call(handle, 7, |begin, now| {
                assert_eq!(*begin, now);
                MillstreamResult::Ok
            });
            assert_eq!(deadline(handle, |_| None), u64::MAX);
        }
    }

    #[test]
    fn null_is_no_bytes_unless_there_are_none() {
        // SAFETY: the pointers are null, or those of a slice.
        unsafe {
            assert_eq!(bytes(std::ptr::null(), 0), Some(&[][..]));
            assert_eq!(bytes(std::ptr::null(), 1), None);
            assert_eq!(bytes(b"ab".as_ptr(), usize::MAX), None);
            assert_eq!(text(b"ab".as_ptr(), 2), Some("ab"));
            assert_eq!(text(b"\xff".as_ptr(), 1), None);
        }
    }
}
