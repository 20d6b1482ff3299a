//! The timers of both machines.

use crate::Timer;

/// The deadlines of a machine.
pub(crate) type Timers = wire::Timers<Timer, 4>;

/// Every timer, in the order in which they are reported when several have expired.
const ALL: [Timer; 4] = [Timer::Handshake, Timer::Command, Timer::Publisher, Timer::Player];

/// Makes the timers of a machine. All are stopped.
pub(crate) const fn stopped() -> Timers {
    Timers::new(ALL)
}
