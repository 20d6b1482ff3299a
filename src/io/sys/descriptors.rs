//! Descriptors that one process passes to another over a Unix socket (unix(7), `SCM_RIGHTS`).

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

/// Room for the header and one descriptor, aligned as the kernel needs it.
#[repr(C, align(8))]
struct Ancillary([u8; 64]);

/// Bytes of a descriptor.
#[allow(clippy::cast_possible_truncation, reason = "4")]
const DESCRIPTOR_BYTES: libc::c_uint = size_of::<RawFd>() as libc::c_uint;

/// Passes a message to `run` that has room for one byte, and for a header with one descriptor. The room lives until
/// `run` has returned.
fn with_message<T>(run: impl FnOnce(&mut libc::msghdr) -> T) -> T {
    let mut byte = 0u8;
    let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let mut ancillary = Ancillary([0; 64]);
    // SAFETY: all-zero bytes are a valid msghdr.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut ancillary).cast();
    // SAFETY: the macro only computes a size: a descriptor and its header take 24 bytes, and there is room for 64.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(DESCRIPTOR_BYTES) } as _;
    run(&mut message)
}

/// Sends one byte with a descriptor. The receiver gets a duplicate.
pub(crate) fn send_descriptor(socket: BorrowedFd<'_>, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    with_message(|message| send(socket, descriptor.as_raw_fd(), message))
}

fn send(socket: BorrowedFd<'_>, raw: RawFd, message: &mut libc::msghdr) -> io::Result<()> {
    // SAFETY: the control buffer of `message` has room for one header with a descriptor.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(DESCRIPTOR_BYTES) as _;
        ptr::write_unaligned(libc::CMSG_DATA(header).cast::<RawFd>(), raw);
    }
    loop {
        // SAFETY: the socket is borrowed and therefore open, and `message` points to values that live across the call.
        let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), message, libc::MSG_NOSIGNAL) };
        match sent {
            1 => return Ok(()),
            _ if sent >= 0 => return Err(io::ErrorKind::WriteZero.into()),
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

/// Receives one byte with a descriptor. The descriptor is closed in programs that this process starts.
pub(crate) fn receive_descriptor(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    with_message(|message| receive(socket, message))
}

fn receive(socket: BorrowedFd<'_>, message: &mut libc::msghdr) -> io::Result<OwnedFd> {
    loop {
        // SAFETY: the socket is borrowed and therefore open, and `message` points to values that live across the call.
        let received = unsafe { libc::recvmsg(socket.as_raw_fd(), message, libc::MSG_CMSG_CLOEXEC) };
        match received {
            1 => break,
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    // SAFETY: the call has succeeded, so that `msg_controllen` is the length of the headers that the kernel has
    // written; CMSG_FIRSTHDR is null if there is none.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(message);
        if header.is_null()
            || (*header).cmsg_level != libc::SOL_SOCKET
            || (*header).cmsg_type != libc::SCM_RIGHTS
        {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // The kernel has just made this descriptor, and no other code knows it.
        Ok(OwnedFd::from_raw_fd(ptr::read_unaligned(libc::CMSG_DATA(header).cast::<RawFd>())))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_listener_goes_on_at_the_other_end() {
        let (mut here, mut there) = UnixStream::pair().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        here.write_all(b"before").unwrap();
        send_descriptor(here.as_fd(), listener.as_fd()).unwrap();
        here.write_all(b"after").unwrap();
        drop((here, listener));
        let mut bytes = [0; 6];
        there.read_exact(&mut bytes).unwrap();
        let passed = TcpListener::from(receive_descriptor(there.as_fd()).unwrap());
        // SAFETY: the descriptor is open, and the call takes numbers.
        let flags = unsafe { libc::fcntl(passed.as_raw_fd(), libc::F_GETFD) };
        assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC, "children do not get it");
        let client = TcpStream::connect(address).unwrap();
        assert_eq!(passed.accept().unwrap().1, client.local_addr().unwrap());
        let mut rest = String::new();
        there.read_to_string(&mut rest).unwrap();
        assert_eq!((&bytes, &*rest), (b"before", "after"));
    }

    #[test]
    fn bytes_without_a_descriptor_are_an_error() {
        let (mut here, there) = UnixStream::pair().unwrap();
        here.write_all(b"x").unwrap();
        assert_eq!(receive_descriptor(there.as_fd()).unwrap_err().kind(), io::ErrorKind::InvalidData);
        drop(here);
        assert_eq!(receive_descriptor(there.as_fd()).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
