//! TLS before the scripted model, in its process: HTTP/2 or HTTP/1.1, as the client likes.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::{ServerConfig, crypto::ring};

use crate::Result;

/// Passes on what comes over TLS, decrypted, to the server at `to`. Writes the certificate to `file`, as PEM; the address as a URL.
pub(crate) async fn before(to: SocketAddr, file: &Path) -> Result<String> {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?;
    fs_err::write(file, made.cert.pem())?;
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions()?.with_no_client_auth();
    let mut config = builder.with_single_cert(vec![made.cert.der().clone()], key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("https://localhost:{}", listener.local_addr()?.port());
    tokio::spawn(async move {
        // When it fails, the engine's next connection does.
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(pass(acceptor.clone(), socket, to));
        }
    });
    Ok(url)
}

/// Until both sides have said all.
async fn pass(acceptor: TlsAcceptor, socket: TcpStream, to: SocketAddr) -> std::io::Result<()> {
    socket.set_nodelay(true)?;
    let mut from = acceptor.accept(socket).await?;
    let mut to = TcpStream::connect(to).await?;
    to.set_nodelay(true)?;
    tokio::io::copy_bidirectional(&mut from, &mut to).await.map(drop)
}
