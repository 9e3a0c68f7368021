//! Places of pages that their reader must learn nothing from: that of a row of a session which a key may not see.
//!
//! They are encrypted under a key of this process, for the API key that reads. After a restart the first page is asked anew.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::principal::Principal;
use crate::problem::{Kind, Problem};

/// The key of this process. `None` where the system has no randomness to give.
static KEY: LazyLock<Option<LessSafeKey>> = LazyLock::new(|| {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).ok()?;
    UnboundKey::new(&CHACHA20_POLY1305, &secret).ok().map(LessSafeKey::new)
});

/// Whose place it is.
fn reader(principal: &Principal) -> Aad<&[u8]> {
    Aad::from(principal.key.as_deref().unwrap_or_default().as_bytes())
}

pub(super) fn sealed<P: Serialize>(place: &P, principal: &Principal) -> Result<String, Problem> {
    let seal = || {
        let mut nonce = [0; NONCE_LEN];
        getrandom::fill(&mut nonce).ok()?;
        let mut text = serde_json::to_vec(place).ok()?;
        let key = KEY.as_ref()?;
        let unique = Nonce::assume_unique_for_key(nonce);
        key.seal_in_place_append_tag(unique, reader(principal), &mut text).ok()?;
        Some(URL_SAFE_NO_PAD.encode([&nonce[..], &text].concat()))
    };
    seal().ok_or_else(|| Problem::new(Kind::Internal, "the place of the next page could not be written"))
}

pub(super) fn opened<P: DeserializeOwned>(text: &str, principal: &Principal) -> Result<P, Problem> {
    let open = || {
        let mut sealed = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (nonce, text) = sealed.split_first_chunk_mut::<NONCE_LEN>()?;
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let text = KEY.as_ref()?.open_in_place(nonce, reader(principal), text).ok()?;
        serde_json::from_slice(text).ok()
    };
    open().ok_or_else(|| {
        let detail = "`after` is not what `next` of the page before said, or the server was started anew since then: ask for \
                      the first page again";
        Problem::invalid(detail)
    })
}

#[cfg(test)]
mod tests {
    use playhouse_protocol::Timestamp;
    use playhouse_protocol::ledger::{RowId, RowPlace};

    use super::*;

    #[test]
    fn a_place_is_read_by_its_reader_only_and_says_nothing() {
        let place = RowPlace {
            tenant: "acme".to_owned(),
            ended: Timestamp::from_millis(1_800_000_000_000),
            id: RowId("row_0000000000010aB45678901234".to_owned()),
        };
        let of = |key: &str| Principal { key: Some(key.into()), ..Principal::local() };
        let (mine, other) = (of("key_1"), of("key_2"));
        let text = sealed(&place, &mine).unwrap();
        assert_ne!(text, sealed(&place, &mine).unwrap());
        let bytes = URL_SAFE_NO_PAD.decode(&text).unwrap();
        assert!(!bytes.windows(4).any(|part| part == b"row_" || part == b"acme"));
        assert_eq!(opened::<RowPlace>(&text, &mine).unwrap(), place);
        let plain = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&place).unwrap());
        for (text, reader) in
            [(&text[..], &other), (&text[1..], &mine), (&plain, &mine), ("", &mine), ("é", &mine)]
        {
            let problem = opened::<RowPlace>(text, reader).unwrap_err();
            assert!(problem.detail.contains("ask for the first page"), "{}", problem.detail);
        }
    }
}
