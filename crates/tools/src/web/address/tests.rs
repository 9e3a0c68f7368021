//! Addresses in all the ways in which they can be written.

use reqwest::Url;

use super::*;

fn check(rules: &Rules, url: &str) -> Result<(), String> {
    let url = Url::parse(url).map_err(|error| format!("{url}: {error}"))?;
    rules.check_host(url.host_str().unwrap()).map_err(|refusal| refusal.to_string())
}

#[test]
fn what_is_not_public_is_refused_however_it_is_written() {
    let table = [
        // Loopback, as browsers and resolvers read it.
        "127.0.0.1",
        "127.0.0.1.",
        "127.1",
        "127.0.1",
        "127.255.255.254",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "0177.0.0.1",
        "0177.1",
        "017700000001",
        "127.0.0.0x1",
        "0x7F.0.0.01",
        "127%2e0%2e0%2e1",
        "%31%32%37.0.0.1",
        "１２７.０.０.１",
        "①②⑦.⓪.⓪.①",
        "127。0。0。1",
        // Unspecified.
        "0.0.0.0",
        "0",
        "0x0",
        "0.1.2.3",
        // Private and shared.
        "10.0.0.1",
        "10.255.255.255",
        "0xa000001",
        "012.0.0.1",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.0.1",
        "192.168.257",
        "3232235777",
        "100.64.0.1",
        "100.127.255.255",
        // Link-local and metadata.
        "169.254.0.1",
        "169.254.169.254",
        "2852039166",
        "0xa9fea9fe",
        "0251.0376.0251.0376",
        "169.254.43518",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "metadata.google.internal",
        "METADATA.google.internal.",
        "metadata",
        "instance-data.ec2.internal",
        // Documentation, benchmarks, reserved, multicast, broadcast.
        "192.0.2.1",
        "198.51.100.7",
        "203.0.113.9",
        "198.18.0.1",
        "198.19.255.255",
        "192.0.0.1",
        "192.88.99.1",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        // IPv6 of its own.
        "[::]",
        "[::1]",
        "[0:0:0:0:0:0:0:1]",
        "[fc00::1]",
        "[fd00:ec2::254]",
        "[fdff::1]",
        "[fe80::1]",
        "[febf::1]",
        "[fec0::1]",
        "[ff02::1]",
        "[2001:db8::1]",
        "[3fff::1]",
        "[100::1]",
        "[5f00::1]",
        "[4000::1]",
        "[2001:2::1]",
        // IPv6 that carries IPv4.
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::ffff:10.0.0.1]",
        "[::ffff:169.254.169.254]",
        "[::127.0.0.1]",
        "[::10.0.0.1]",
        "[::8.8.8.8]",
        "[::ffff:0:127.0.0.1]",
        "[64:ff9b::127.0.0.1]",
        "[64:ff9b::a9fe:a9fe]",
        "[64:ff9b:1::1]",
        "[2002:7f00:1::]",
        "[2002:a9fe:a9fe::1]",
        "[2002:c0a8:101::]",
        "[2001:0:7f00:1::1]",
        "[2001::1]",
        "[2606:4700::5efe:10.0.0.1]",
        "[2606:4700::200:5efe:192.168.1.1]",
    ];
    assert!(table.len() >= 60);
    let rules = Rules::default();
    for host in table {
        let error = check(&rules, &format!("http://{host}/")).expect_err(host);
        assert!(error.contains("allow_private"), "{host}: {error}");
    }
}

#[test]
fn the_public_internet_is_reached() {
    let rules = Rules::default();
    for host in [
        "8.8.8.8",
        "1.1.1.1",
        "9.255.255.255",
        "11.0.0.1",
        "100.63.255.255",
        "100.128.0.1",
        "126.255.255.255",
        "128.0.0.1",
        "134744072",
        "172.15.0.1",
        "172.32.0.1",
        "192.167.0.1",
        "192.169.0.1",
        "169.253.0.1",
        "198.17.0.1",
        "198.20.0.1",
        "223.255.255.255",
        "example.com",
        "localhost.example.com",
        "metadata.example.com",
        "[2606:4700:4700::1111]",
        "[2a00:1450::1]",
        "[::ffff:8.8.8.8]",
        "[64:ff9b::8.8.8.8]",
        "[2002:808:808::1]",
        "[2001:200::1]",
        "[2606:4700::5efe:8.8.8.8]",
    ] {
        assert_eq!(check(&rules, &format!("https://{host}/")), Ok(()), "{host}");
    }
}

#[test]
fn what_is_allowed_is_reached_and_nothing_beside_it() {
    let allowed = ["127.0.0.1", "10.0.0.0/8", "fd12::/16", "metadata.google.internal", "*.corp.example"];
    let rules = Rules::new(allowed.iter().map(|text| text.parse().unwrap()).collect());
    for host in
        ["127.0.0.1", "127.1", "10.9.8.7", "[::ffff:10.0.0.1]", "[fd12::7]", "metadata.google.internal"]
    {
        assert_eq!(check(&rules, &format!("http://{host}/")), Ok(()), "{host}");
    }
    for host in ["127.0.0.2", "11.0.0.1.1", "172.16.0.1", "[fd13::1]", "[::1]", "metadata"] {
        assert!(check(&rules, &format!("http://{host}/")).is_err(), "{host}");
    }
    let private: IpAddr = "192.168.1.1".parse().unwrap();
    assert_eq!(rules.filter("git.corp.example", vec![private]), Ok(vec![private]));
    assert_eq!(rules.filter("GIT.corp.example.", vec![private]), Ok(vec![private]));
    for name in ["corp.example", "evilcorp.example", "git.corp.example.org"] {
        assert!(rules.filter(name, vec![private]).is_err(), "{name}");
    }
}

#[test]
fn of_several_addresses_only_public_ones_are_kept() {
    let (public, private): (IpAddr, IpAddr) = ("8.8.8.8".parse().unwrap(), "10.0.0.1".parse().unwrap());
    let rules = Rules::default();
    assert_eq!(rules.filter("a.example", vec![private, public]), Ok(vec![public]));
    assert_eq!(rules.filter("a.example", Vec::new()), Ok(Vec::new()));
    let refusal = rules.filter("a.example", vec![private]).unwrap_err().to_string();
    assert!(refusal.starts_with("a.example resolves to 10.0.0.1, which is a private address"), "{refusal}");
}

#[test]
fn what_cannot_be_allowed_is_told() {
    for text in [
        "",
        "*",
        "*.",
        "10.0.0.0/33",
        "10.0.0.0/",
        "::/129",
        "http://a.example",
        "a b",
        "a/8",
        "10.0.0",
        ".a",
        "ä",
    ] {
        let error = text.parse::<Allowed>().unwrap_err();
        assert!(error.contains("write an address"), "{text}: {error}");
    }
    assert_eq!(
        "0.0.0.0/0".parse::<Allowed>().map(|all| Rules::new(vec![all]).check_host("10.0.0.1")),
        Ok(Ok(()))
    );
    assert_eq!("[::1]".parse(), Ok(Allowed::Network("::1".parse().unwrap(), 128)));
}
