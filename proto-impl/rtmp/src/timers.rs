//! The timers of both machines.

use crate::Timer;

/// The deadlines of a machine.
pub(crate) type Timers = wire::Timers<Timer, 4>;

/// All timers. If several have expired, they are reported in this order.
const ALL: [Timer; 4] = [Timer::Handshake, Timer::Command, Timer::Publisher, Timer::Player];

/// Makes the timers of a machine. All are stopped.
pub(crate) const fn stopped() -> Timers {
    Timers::new(ALL)
}
