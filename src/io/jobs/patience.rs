//! Connections for requests to other servers. Before such a connection gives up, it reads the bytes that have
//! already arrived.
//!
//! A request has a time limit. If the process was held up (stopped, or suspended together with its machine), the
//! limit may have passed although the answer has arrived in the socket. Therefore a read that times out is tried
//! once more.

use std::time::{Duration, Instant};

use ureq::Error;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, NextTimeout, RustlsConnector, TcpConnector, Transport, time,
};

/// Duration of the one additional read after the time limit has passed.
const MOMENT: Duration = Duration::from_millis(10);
/// Time after the limit during which additional reads are made, even if more bytes keep arriving.
const MOMENTS: Duration = Duration::from_secs(1);

/// Makes connections over TCP, and over TLS for `https`.
pub(super) fn connector() -> impl Connector {
    ().chain(TcpConnector::default()).chain(Patient).chain(RustlsConnector::default())
}

/// Wraps connections over TCP.
#[derive(Debug)]
struct Patient;

impl<T: Transport> Connector<T> for Patient {
    type Out = PatientTransport<T>;

    fn connect(&self, _: &ConnectionDetails<'_>, chained: Option<T>) -> Result<Option<Self::Out>, Error> {
        Ok(chained.map(|inner| PatientTransport { inner, until: None }))
    }
}

/// A connection that is still read for a moment after its time limit.
#[derive(Debug)]
struct PatientTransport<T> {
    inner: T,
    /// Time after which no additional reads are made. Set by the first read that times out.
    until: Option<Instant>,
}

impl<T: Transport> Transport for PatientTransport<T> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.inner.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.inner.transmit_output(amount, timeout)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        match self.inner.await_input(timeout) {
            Err(Error::Timeout(reason)) => {
                let now = Instant::now();
                let until = *self.until.get_or_insert_with(|| now.checked_add(MOMENTS).unwrap_or(now));
                let left = until.saturating_duration_since(now).min(MOMENT);
                self.inner.await_input(NextTimeout { after: time::Duration::Exact(left), reason, ..timeout })
            }
            result => result,
        }
    }

    fn is_open(&mut self) -> bool {
        self.inner.is_open()
    }

    fn is_tls(&self) -> bool {
        self.inner.is_tls()
    }
}

#[cfg(test)]
mod tests {
    use ureq::Timeout;
    use ureq::unversioned::transport::LazyBuffers;

    use super::*;

    /// A connection whose reads all time out, except the one that finds input.
    #[derive(Debug)]
    struct Socket {
        buffers: LazyBuffers,
        limits: Vec<Duration>,
        has_input_at: usize,
    }

    impl Transport for Socket {
        fn buffers(&mut self) -> &mut dyn Buffers {
            &mut self.buffers
        }

        fn transmit_output(&mut self, _: usize, _: NextTimeout) -> Result<(), Error> {
            Ok(())
        }

        fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
            self.limits.push(*timeout.after);
            let found = self.limits.len() == self.has_input_at;
            if found { Ok(true) } else { Err(Error::Timeout(timeout.reason)) }
        }

        fn is_open(&mut self) -> bool {
            true
        }
    }

    fn read(transport: &mut PatientTransport<Socket>, seconds: u64) -> bool {
        let timeout = NextTimeout {
            after: time::Duration::from_secs(seconds),
            reason: Timeout::Global,
            ..NextTimeout::default()
        };
        match transport.await_input(timeout) {
            Ok(found) => found,
            Err(Error::Timeout(Timeout::Global)) => false,
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn q_12_a_read_that_times_out_looks_once_more() {
        let inner = Socket { buffers: LazyBuffers::new(64, 64), limits: Vec::new(), has_input_at: 2 };
        let mut transport = PatientTransport { inner, until: None };
        assert!(read(&mut transport, 5), "what has come is read");
        assert!(!read(&mut transport, 0), "nothing has");
        assert_eq!(transport.inner.limits, [Duration::from_secs(5), MOMENT, Duration::ZERO, MOMENT]);
        // The server keeps sending a few bytes at a time.
        transport.until = Some(Instant::now());
        assert!(!read(&mut transport, 0));
        assert_eq!(transport.inner.limits.last(), Some(&Duration::ZERO));
    }
}
