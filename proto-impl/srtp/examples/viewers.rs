//! Seals a payload for many viewers and prints the cost of a viewer's context:
//!
//! ```text
//! cargo run --release -p millstream-srtp --example viewers [VIEWERS]
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use rtp::{Csrcs, Header, PayloadType, SequenceNumber, Ssrc};
use srtp::{Inbound, MasterKey, Outbound, Profile};
use wire::Datagrams;

fn main() -> Result<(), Box<dyn Error>> {
    let viewers: usize = std::env::args().nth(1).map_or(Ok(10_000), |text| text.parse())?;
    let payload = vec![0x5a; 1188];
    // Keeps the contexts of all profiles, so that none is measured in memory that another has freed.
    let mut kept = Vec::new();
    for profile in [Profile::AeadAes128Gcm, Profile::AeadAes256Gcm, Profile::Aes128CmHmacSha1_80] {
        let before = resident_bytes()?;
        let mut contexts = Vec::with_capacity(viewers);
        for viewer in 0..viewers {
            // A handshake would export this keying material; here it is the viewer's number.
            let mut material = vec![7; profile.keying_bytes()];
            material.iter_mut().zip(viewer.to_be_bytes()).for_each(|(to, from)| *to = from);
            let (client, server) = MasterKey::of_dtls(profile, &material).ok_or("keying material")?;
            let inbound = Inbound::new(&client).ok_or("keys")?;
            contexts.push((Outbound::new(&server).ok_or("keys")?, inbound, server));
        }
        let mut out = Datagrams::new();
        for (viewer, (outbound, _, server)) in contexts.iter_mut().enumerate() {
            let header = header(u32::try_from(viewer)?, 1)?;
            out.clear();
            outbound.seal(&header, &payload, &mut out)?;
            // Decrypts the packet at the viewer's end, as a check.
            let mut packet = out.get(0).to_vec();
            let length = Inbound::new(server).ok_or("keys")?.unprotect(&mut packet)?;
            if packet.get(length.saturating_sub(payload.len())..length) != Some(&payload[..]) {
                return Err("another payload".into());
            }
        }
        let each = resident_bytes()?.saturating_sub(before) / viewers.max(1);
        println!(
            "{profile:?}: {viewers} viewers, {each} bytes each for both directions; {} + {} bytes of them inline",
            size_of::<Outbound>(),
            size_of::<Inbound>()
        );
        kept.push(contexts);
    }
    Ok(())
}

fn header(ssrc: u32, number: u16) -> Result<Header<'static>, &'static str> {
    Ok(Header {
        marker: true,
        payload_type: PayloadType::new(96).ok_or("seven bits")?,
        sequence_number: SequenceNumber(number),
        timestamp: 90_000,
        ssrc: Ssrc(ssrc),
        csrcs: Csrcs::default(),
        extension: None,
    })
}

/// Resident memory of the process in bytes (Linux).
fn resident_bytes() -> Result<usize, Box<dyn Error>> {
    let pages = std::fs::read_to_string("/proc/self/statm")?;
    let resident: usize = pages.split_whitespace().nth(1).ok_or("statm")?.parse()?;
    Ok(resident * 4096)
}
