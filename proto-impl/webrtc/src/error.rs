//! Errors of session descriptions and of API misuse.

/// The reason a session cannot be set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The description has no media section over DTLS-SRTP.
    #[error("no usable media section")]
    NoMedia,
    /// The media sections do not belong to one bundle (RFC 9143).
    #[error("sections are not bundled")]
    NotBundled,
    /// The peer wants RTCP on a separate port.
    #[error("rtcp-mux is required")]
    NoRtcpMux,
    /// The description has no usable `ice-ufrag` and `ice-pwd`.
    #[error("no ICE credentials")]
    NoIceCredentials,
    /// The description has no fingerprint with a secure hash (RFC 8122 §5).
    #[error("no fingerprint of the certificate")]
    NoFingerprint,
    /// `a=setup` does not choose a DTLS role in a description that must choose one.
    #[error("no DTLS role")]
    NoDtlsRole,
    /// No section has a format and a direction acceptable to both sides.
    #[error("no common format")]
    NothingInCommon,
    /// The answer does not match the offer.
    #[error(transparent)]
    Answer(#[from] sdp::AnswerError),
    /// The call is not allowed in this state, for example a second offer before the first is answered, or an
    /// answer without an offer.
    #[error("not possible in this state")]
    State,
    /// A later description would require another DTLS association, because roles or certificates changed (RFC
    /// 8842 §3.1). That needs a new session.
    #[error("a running session keeps its DTLS association")]
    NewAssociation,
    /// The section does not exist, or does not have this direction.
    #[error("no such section")]
    NoSection,
}
