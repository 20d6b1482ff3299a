//! Figures of a connection, with the names of libsrt (`docs/API/statistics.md`) in snake case: counters since the start,
//! and figures of now.

/// A snapshot.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Stats {
    /// Data packets sent, again ones too.
    pub pkt_sent: u64,
    /// Data packets sent for the first time.
    pub pkt_sent_unique: u64,
    /// Data packets sent again.
    pub pkt_retrans: u64,
    /// Data packets that the peer reported as lost.
    pub pkt_snd_loss: u64,
    /// Data packets that were given up because they were too old to arrive in time.
    pub pkt_snd_drop: u64,
    /// Data packets received, duplicates too.
    pub pkt_recv: u64,
    /// Data packets received that were new.
    pub pkt_recv_unique: u64,
    /// Data packets found missing when a later one came.
    pub pkt_rcv_loss: u64,
    /// Data packets given up: missing when a later one was due.
    pub pkt_rcv_drop: u64,
    /// Data packets received that had been sent again.
    pub pkt_rcv_retrans: u64,
    /// Data packets that came after they were given up or delivered.
    pub pkt_rcv_belated: u64,
    /// Data packets that no key opens, or that are clear where there are keys, or encrypted where there are none.
    pub pkt_rcv_undecrypt: u64,
    /// Data packets for which there was no room.
    pub pkt_rcv_no_room: u64,
    /// Datagrams that make no sense.
    pub pkt_recv_malformed: u64,
    /// Acknowledgements sent.
    pub pkt_sent_ack: u64,
    /// Acknowledgements received.
    pub pkt_recv_ack: u64,
    /// Loss reports sent.
    pub pkt_sent_nak: u64,
    /// Loss reports received.
    pub pkt_recv_nak: u64,
    /// Bytes of `pkt_sent`, with heads.
    pub byte_sent: u64,
    /// Bytes of `pkt_sent_unique`.
    pub byte_sent_unique: u64,
    /// Bytes of `pkt_retrans`.
    pub byte_retrans: u64,
    /// Bytes of `pkt_recv`.
    pub byte_recv: u64,
    /// Bytes of `pkt_recv_unique`.
    pub byte_recv_unique: u64,
    /// Keys that were changed.
    pub km_refreshes: u64,
    /// Packets of the packet filter.
    pub filter: FilterStats,

    /// Round trip, milliseconds.
    pub ms_rtt: f64,
    /// Its mean deviation, milliseconds.
    pub ms_rtt_var: f64,
    /// The capacity of the path as the receiver estimates it, in Mb/s.
    pub mbps_bandwidth: f64,
    /// Packets sent and not acknowledged.
    pub pkt_flight_size: u32,
    /// Packets that wait to be acknowledged or sent.
    pub pkt_snd_buf: u32,
    /// Bytes in the send buffer.
    pub byte_snd_buf: u64,
    /// Age of the oldest of them, milliseconds.
    pub ms_snd_buf: u32,
    /// Packets that wait to be delivered, with those that are missing between them.
    pub pkt_rcv_buf: u32,
    /// Bytes in the receive buffer.
    pub byte_rcv_buf: u64,
    /// The receive latency, in milliseconds.
    pub ms_rcv_tsb_pd_delay: u32,
    /// The peer's latency, in milliseconds.
    pub ms_snd_tsb_pd_delay: u32,
    /// The drift of the peer's clock against ours, in microseconds.
    pub us_drift: i64,
}

/// Figures of the packet filter, with the names of libsrt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FilterStats {
    /// Parity packets sent (`pktSndFilterExtra`).
    pub pkt_snd_extra: u64,
    /// Parity packets received (`pktRcvFilterExtra`).
    pub pkt_rcv_extra: u64,
    /// Data packets rebuilt (`pktRcvFilterSupply`).
    pub pkt_rcv_supply: u64,
    /// Data packets reported as lost because they could not be rebuilt (`pktRcvFilterLoss`).
    pub pkt_rcv_loss: u64,
}

pub(crate) fn count(counter: &mut u64, by: usize) {
    *counter = counter.saturating_add(u64::try_from(by).unwrap_or(u64::MAX));
}
