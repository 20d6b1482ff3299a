//! Statistics of a connection, with the names of libsrt (`docs/API/statistics.md`) in snake case: counters since the
//! start, and current values.

/// Snapshot of a connection's statistics.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Stats {
    /// Data packets sent, retransmissions included.
    pub pkt_sent: u64,
    /// Data packets sent for the first time.
    pub pkt_sent_unique: u64,
    /// Data packets retransmitted.
    pub pkt_retrans: u64,
    /// Data packets that the peer reported as lost.
    pub pkt_snd_loss: u64,
    /// Data packets given up because they were too old to arrive in time.
    pub pkt_snd_drop: u64,
    /// Data packets received, duplicates included.
    pub pkt_recv: u64,
    /// Data packets received for the first time.
    pub pkt_recv_unique: u64,
    /// Data packets found missing when a later one arrived.
    pub pkt_rcv_loss: u64,
    /// Data packets given up because they were still missing when a later packet was due.
    pub pkt_rcv_drop: u64,
    /// Data packets received that were marked as retransmitted.
    pub pkt_rcv_retrans: u64,
    /// Data packets received after they were delivered or given up.
    pub pkt_rcv_belated: u64,
    /// Data packets that could not be decrypted: their key is unknown, or the packet is encrypted and the connection
    /// is not, or the other way around.
    pub pkt_rcv_undecrypt: u64,
    /// Data packets dropped because the receive buffer had no room.
    pub pkt_rcv_no_room: u64,
    /// Datagrams that could not be parsed.
    pub pkt_recv_malformed: u64,
    /// Acknowledgements sent.
    pub pkt_sent_ack: u64,
    /// Acknowledgements received.
    pub pkt_recv_ack: u64,
    /// Loss reports sent.
    pub pkt_sent_nak: u64,
    /// Loss reports received.
    pub pkt_recv_nak: u64,
    /// Bytes of `pkt_sent`, SRT headers included.
    pub byte_sent: u64,
    /// Bytes of `pkt_sent_unique`.
    pub byte_sent_unique: u64,
    /// Bytes of `pkt_retrans`.
    pub byte_retrans: u64,
    /// Bytes of `pkt_recv`.
    pub byte_recv: u64,
    /// Bytes of `pkt_recv_unique`.
    pub byte_recv_unique: u64,
    /// Number of key changes.
    pub km_refreshes: u64,
    /// Statistics of the packet filter.
    pub filter: FilterStats,

    /// Smoothed round-trip time, in milliseconds.
    pub ms_rtt: f64,
    /// Variation of the round-trip time, in milliseconds.
    pub ms_rtt_var: f64,
    /// Capacity of the path as estimated by the receiver, in Mb/s.
    pub mbps_bandwidth: f64,
    /// Packets sent and not yet acknowledged.
    pub pkt_flight_size: u32,
    /// Packets in the send buffer: unsent or unacknowledged.
    pub pkt_snd_buf: u32,
    /// Bytes in the send buffer.
    pub byte_snd_buf: u64,
    /// Age of the oldest packet in the send buffer, in milliseconds.
    pub ms_snd_buf: u32,
    /// Packets in the receive buffer, including the missing ones between them.
    pub pkt_rcv_buf: u32,
    /// Bytes in the receive buffer.
    pub byte_rcv_buf: u64,
    /// The receive latency, in milliseconds.
    pub ms_rcv_tsb_pd_delay: u32,
    /// Send latency in milliseconds: the time for which the peer holds the packets that it receives.
    pub ms_snd_tsb_pd_delay: u32,
    /// Drift of the peer's clock against the local clock, in microseconds.
    pub us_drift: i64,
}

/// Statistics of the packet filter, with the names of libsrt.
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
