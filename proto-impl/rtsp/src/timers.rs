//! The timers of a server and of a client.

use crate::Timer;

/// The deadlines of a server or a client.
pub(crate) type Timers = wire::Timers<Timer, 4>;

/// All timers. If several have expired, they are reported in this order.
const ALL: [Timer; 4] = [Timer::Request, Timer::Session, Timer::Media, Timer::KeepAlive];

/// Creates the timers. All are stopped.
pub(crate) const fn stopped() -> Timers {
    Timers::new(ALL)
}
