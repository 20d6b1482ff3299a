//! Errors of descriptions and of misuse.

/// The reason a session cannot be set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No section of media over DTLS-SRTP.
    #[error("no usable media section")]
    NoMedia,
    /// Several sections that are not of one bundle (RFC 9143).
    #[error("sections are not bundled")]
    NotBundled,
    /// RTCP on a port of its own.
    #[error("rtcp-mux is required")]
    NoRtcpMux,
    /// No usable `ice-ufrag` and `ice-pwd`.
    #[error("no ICE credentials")]
    NoIceCredentials,
    /// No fingerprint of a hash that proves something (RFC 8122 §5).
    #[error("no fingerprint of the certificate")]
    NoFingerprint,
    /// `a=setup` leaves the roles open where they must be settled.
    #[error("no DTLS role")]
    NoDtlsRole,
    /// No section has a format and a direction that both sides want.
    #[error("no common format")]
    NothingInCommon,
    /// An answer that does not fit the offer.
    #[error(transparent)]
    Answer(#[from] sdp::AnswerError),
    /// A call that does not fit the state: a second offer while one is open, an answer without one.
    #[error("not possible in this state")]
    State,
    /// A later offer whose roles or certificates would need another DTLS association (RFC 8842 §3.1): that is another session.
    #[error("a running session keeps its DTLS association")]
    NewAssociation,
    /// A section that is not there, or does not go this way.
    #[error("no such section")]
    NoSection,
}
