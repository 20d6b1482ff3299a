//! Derives session keys from a master key (RFC 3711 §4.3), once per session (key derivation rate 0).

use crypto::AesCtr;

use crate::profile::{MasterKey, SALT_BYTES_MAX};

/// Label of a session key (RFC 3711 §4.3.1, §4.3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Label {
    RtpEncryption = 0x00,
    RtpAuthentication = 0x01,
    RtpSalt = 0x02,
    RtcpEncryption = 0x03,
    RtcpAuthentication = 0x04,
    RtcpSalt = 0x05,
}

/// Position of the label in the initial counter block: before the 48-bit index, which is zero with this key
/// derivation rate.
const LABEL_AT: usize = 7;

/// Fills `out` with the session key for a label. AES-256 is used for AES-256 keys (RFC 6188 §3).
pub(crate) fn session_key(master: &MasterKey, label: Label, out: &mut [u8]) {
    let salt = master.salt();
    let mut initial = [0; 16];
    for (at, byte) in initial.iter_mut().enumerate() {
        *byte = salt.get(at).copied().unwrap_or(0) ^ if at == LABEL_AT { label as u8 } else { 0 };
    }
    out.fill(0);
    // Never fails, because the length of a master key is one that AES supports.
    if let Some(cipher) = AesCtr::new(master.key()) {
        cipher.apply(initial, out);
    }
}

/// Returns the session salt for a label, padded with zeros if the profile's salt is shorter.
pub(crate) fn session_salt(master: &MasterKey, label: Label) -> [u8; SALT_BYTES_MAX] {
    let mut salt = [0; SALT_BYTES_MAX];
    if let Some(salt) = salt.get_mut(..master.profile().salt_bytes()) {
        session_key(master, label, salt);
    }
    salt
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;
    use crate::testing::hex;

    /// Checks the vectors of RFC 3711 B.3.
    #[test]
    fn session_keys_of_the_rfc() {
        let master = MasterKey::new(
            Profile::Aes128CmHmacSha1_80,
            &hex("E1F97A0D3E018BE0D64FA32C06DE4139"),
            &hex("0EC675AD498AFEEBB6960B3AABE6"),
        )
        .unwrap();
        let derived = |label, length| {
            let mut out = vec![0xff; length];
            session_key(&master, label, &mut out);
            out
        };
        assert_eq!(derived(Label::RtpEncryption, 16), hex("C61E7A93744F39EE10734AFE3FF7A087"));
        assert_eq!(session_salt(&master, Label::RtpSalt).to_vec(), hex("30CBBC08863D8C85D49DB34A9AE1"));
        assert_eq!(
            derived(Label::RtpAuthentication, 94),
            hex("CEBE321F6FF7716B6FD4AB49AF256A156D38BAA48F0A0ACF3C34E2359E6CDBCE\
                 E049646C43D9327AD175578EF72270986371C10C9A369AC2F94A8C5FBCDDDC25\
                 6D6E919A48B610EF17C2041E474035766B68642C59BBFC2F34DB60DBDFB2")
        );
    }

    #[test]
    fn a_short_salt_is_filled_up_on_the_right() {
        let master = MasterKey::new(Profile::AeadAes128Gcm, &[7; 16], &[9; 12]).unwrap();
        let padded = MasterKey::new(
            Profile::Aes128CmHmacSha1_80,
            &[7; 16],
            &[9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 0, 0],
        );
        let (mut short, mut long) = ([0; 16], [0; 16]);
        session_key(&master, Label::RtcpEncryption, &mut short);
        session_key(&padded.unwrap(), Label::RtcpEncryption, &mut long);
        assert_eq!(short, long);
        assert_eq!(session_salt(&master, Label::RtpSalt)[12..], [0, 0]);
    }
}
