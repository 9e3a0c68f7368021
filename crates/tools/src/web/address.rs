//! Which addresses a model may reach: those of the public Internet, and what the operator allowed beside them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use thiserror::Error;

/// Names under which clouds give out credentials of the machine. What they resolve to is refused as well; some clouds
/// answer to them at addresses of their own.
const METADATA_NAMES: [&str; 7] = [
    "instance-data",
    "instance-data.ec2.internal",
    "kubernetes.default.svc",
    "metadata",
    "metadata.azure.internal",
    "metadata.goog",
    "metadata.google.internal",
];

/// A host or a network that is reachable although it is not public.
///
/// ```
/// use playhouse_tools::web::Allowed;
///
/// assert!("10.0.0.0/8".parse::<Allowed>().is_ok());
/// assert!("*.intranet.example".parse::<Allowed>().is_ok());
/// assert!("http://intranet.example".parse::<Allowed>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// A host by its name, in lower case, wherever it is.
    Host(String),
    /// All hosts below a name, in lower case and with the dot before it.
    Below(String),
    /// The addresses whose first bits are those of this one; as many as the number says.
    Network(IpAddr, u8),
}

impl FromStr for Allowed {
    type Err = String;

    /// Reads `10.0.0.1`, `10.0.0.0/8`, `fd00::/8`, `intranet.example` or `*.intranet.example`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = |reason: &str| {
            Err(format!(
                "\"{}\" {reason}: write an address (`10.0.0.1`), a network (`10.0.0.0/8`), a host (`intranet.example`) or `*.` and a host",
                text.escape_debug()
            ))
        };
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        if let Ok(address) = address.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            let most = if address.is_ipv4() { 32 } else { 128 };
            return match bits.map_or(Ok(most), str::parse) {
                Ok(bits) if bits <= most => Ok(Self::Network(address, bits)),
                _ => wrong(&format!("has no number of bits from 0 to {most} after the slash")),
            };
        }
        let name = text.strip_prefix("*.").unwrap_or(text);
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let numeric = name.rsplit('.').next().is_some_and(|last| last.bytes().all(|b| b.is_ascii_digit()));
        if name.is_empty() || name.starts_with('.') || !name.chars().all(fits) || numeric {
            return wrong("is neither an address nor the name of a host");
        }
        let name = normal(name);
        Ok(if text.starts_with("*.") { Self::Below(format!(".{name}")) } else { Self::Host(name) })
    }
}

/// Why an address or a name is not reached.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{what} is {kind}: only the public Internet can be reached, unless the operator adds to `allow_private` in [tools.web]"
)]
pub struct Refusal {
    /// What is refused: an address, a name, or a name and what it resolves to.
    pub what: String,
    /// What it is.
    pub kind: &'static str,
}

/// What may be reached.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    allowed: Vec<Allowed>,
    /// For addresses that the operator chose.
    everything: bool,
}

impl Rules {
    pub(super) fn new(allowed: Vec<Allowed>) -> Self {
        Self { allowed, everything: false }
    }

    pub(super) fn everything() -> Self {
        Self { allowed: Vec::new(), everything: true }
    }

    /// Is the host of an address allowed as far as it can be told before it is resolved? `host` is as an URL has it.
    pub(super) fn check_host(&self, host: &str) -> Result<(), Refusal> {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        if let Ok(address) = bare.parse::<IpAddr>() {
            return self.check_address(address);
        }
        let name = normal(host);
        if METADATA_NAMES.contains(&name.as_str()) && !self.names(&name) {
            return Err(Refusal { what: name, kind: "the metadata service of a cloud" });
        }
        Ok(())
    }

    /// Those of `addresses`, which the name resolves to, that may be connected to.
    pub(super) fn filter(&self, host: &str, addresses: Vec<IpAddr>) -> Result<Vec<IpAddr>, Refusal> {
        let name = normal(host);
        if self.names(&name) {
            return Ok(addresses);
        }
        let mut refused = None;
        let mut good = Vec::with_capacity(addresses.len());
        for address in addresses {
            match self.check_address(address) {
                Ok(()) => good.push(address),
                Err(refusal) => refused = Some(refusal),
            }
        }
        match refused {
            Some(Refusal { what, kind }) if good.is_empty() => {
                Err(Refusal { what: format!("{name} resolves to {what}, which"), kind })
            }
            _ => Ok(good),
        }
    }

    fn check_address(&self, address: IpAddr) -> Result<(), Refusal> {
        if self.everything || self.holds(address) {
            return Ok(());
        }
        match not_public(address) {
            None => Ok(()),
            Some(kind) => Err(Refusal { what: address.to_string(), kind }),
        }
    }

    fn names(&self, name: &str) -> bool {
        self.everything
            || self.allowed.iter().any(|allowed| match allowed {
                Allowed::Host(host) => host == name,
                Allowed::Below(suffix) => name.ends_with(suffix.as_str()),
                Allowed::Network(..) => false,
            })
    }

    fn holds(&self, address: IpAddr) -> bool {
        self.allowed.iter().any(|allowed| match allowed {
            Allowed::Network(network, bits) => {
                shares(address, *network, *bits) || shares(address.to_canonical(), *network, *bits)
            }
            Allowed::Host(_) | Allowed::Below(_) => false,
        })
    }
}

/// A name as it is compared: in lower case, and without the dot that makes it absolute.
fn normal(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

/// Are the first `bits` of both the same?
fn shares(address: IpAddr, network: IpAddr, bits: u8) -> bool {
    match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) => {
            let differs = u32::from(address) ^ u32::from(network);
            differs.checked_shr(32 - u32::from(bits)).unwrap_or(0) == 0
        }
        (IpAddr::V6(address), IpAddr::V6(network)) => {
            let differs = u128::from(address) ^ u128::from(network);
            differs.checked_shr(128 - u32::from(bits)).unwrap_or(0) == 0
        }
        _ => false,
    }
}

/// What an address is that is not of the public Internet.
pub(super) fn not_public(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => not_public_v4(address),
        IpAddr::V6(address) => not_public_v6(address),
    }
}

fn not_public_v4(address: Ipv4Addr) -> Option<&'static str> {
    Some(match address.octets() {
        [0, ..] => "an unspecified address",
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => "a private address",
        // Alibaba's, Azure's, the usual one and Oracle's.
        [100, 100, 100, 200] | [168, 63, 129, 16] | [169, 254, 169, 254] | [192, 0, 0, 192] => {
            "the metadata service of a cloud"
        }
        [100, 64..=127, ..] => "an address of a provider's own network",
        [127, ..] => "a loopback address",
        [169, 254, ..] => "a link-local address",
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => "an address for documentation",
        [198, 18..=19, ..] => "an address for benchmarks",
        [224..=239, ..] => "a multicast address",
        [255, 255, 255, 255] => "the broadcast address",
        [192, 0, 0, _] | [192, 88, 99, _] | [240..=255, ..] => "a reserved address",
        _ => return None,
    })
}

fn not_public_v6(address: Ipv6Addr) -> Option<&'static str> {
    let segments = address.segments();
    let embedded = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        not_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match segments {
        [0, 0, 0, 0, 0, 0, 0, 0] => Some("an unspecified address"),
        [0, 0, 0, 0, 0, 0, 0, 1] => Some("a loopback address"),
        // IPv4-mapped, and what a NAT64 translates.
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => embedded(high, low),
        // 6to4.
        [0x2002, high, low, ..] => embedded(high, low),
        // ISATAP.
        [.., 0 | 0x200, 0x5efe, high, low] if embedded(high, low).is_some() => embedded(high, low),
        [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254] => Some("the metadata service of a cloud"),
        [0xfc00..=0xfdff, ..] | [0xfec0..=0xfeff, ..] => Some("a private address"),
        [0xfe80..=0xfebf, ..] => Some("a link-local address"),
        [0xff00..=0xffff, ..] => Some("a multicast address"),
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => Some("an address for documentation"),
        // Teredo, ORCHID, benchmarks and others that no server has.
        [0x2001, 0..=0x1ff, ..] => Some("a reserved address"),
        [0x2000..=0x3fff, ..] => None,
        // IPv4-compatible and IPv4-translated ones among them.
        _ => Some("a reserved address"),
    }
}

#[cfg(test)]
mod tests;
