//! Automatic repeat request and delivery in time (draft-sharabayko-srt-01 §4.5 to §4.8).

pub(crate) mod losses;
pub(crate) mod receive;
pub(crate) mod rtt;
pub(crate) mod send;
pub(crate) mod tsbpd;
