//! Where a database is and who asks it.

use std::time::Duration;

use maru_runtime::SecretString;
use tokio_postgres::{Config, config::SslMode};

use super::read_transaction::timeout_settings;
use crate::Error;

const TLS_NOT_SUPPORTED: &str = "it asks for TLS, which maru does not speak to PostgreSQL yet; \
    use sslmode=disable on a network that you trust";

/// The address of a PostgreSQL database.
#[derive(Clone, Debug)]
pub enum PostgresAddress {
    /// `postgres://user:password@host:port/database`
    Url(SecretString),
    /// The same in parts.
    Server(PostgresServer),
}

/// A database in parts.
#[derive(Clone, Debug)]
pub struct PostgresServer {
    /// Name or address, or the directory of a socket.
    pub host: String,
    /// The port, mostly 5432.
    pub port: u16,
    /// The role that maru has there; best one that may only read.
    pub user: String,
    /// Its password.
    pub password: SecretString,
    /// The database.
    pub database: String,
}

impl PostgresAddress {
    /// What connects there, read-only before anybody asks, with deadlines for queries
    /// that may take so long. The errors quote nothing, because the password could be
    /// anywhere in what cannot be read.
    pub(super) fn config(&self, timeout: Duration) -> Result<Config, Error> {
        let mut config = match self {
            Self::Url(url) => parse_url(url.reveal())?,
            Self::Server(server) => server.config(),
        };
        if config.get_ssl_mode() == SslMode::Require {
            return invalid_settings(TLS_NOT_SUPPORTED);
        }
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return invalid_settings("its address names no host");
        }
        // No query can change these, and each use ends by going back to them.
        let ours = "-c default_transaction_read_only=on -c standard_conforming_strings=on \
            -c IntervalStyle=iso_8601 -c DateStyle=ISO -c bytea_output=hex \
            -c extra_float_digits=1 -c jit=off";
        let given = config.get_options().unwrap_or_default();
        let mut options = format!("{given} {ours}");
        for (name, milliseconds) in timeout_settings(timeout) {
            options.push_str(&format!(" -c {name}={milliseconds}"));
        }
        config.options(options.trim()).application_name("maru");
        Ok(config)
    }
}

impl PostgresServer {
    fn config(&self) -> Config {
        let mut config = Config::new();
        config
            .host(&self.host)
            .port(self.port)
            .user(&self.user)
            .password(self.password.reveal())
            .dbname(&self.database);
        config
    }
}

fn parse_url(url: &str) -> Result<Config, Error> {
    let schemes = ["postgres://", "postgresql://"];
    if !schemes.iter().any(|it| url.starts_with(it)) {
        return invalid_settings("its address does not start with postgres://");
    }
    if url.contains("sslmode=verify") {
        return invalid_settings(TLS_NOT_SUPPORTED);
    }
    url.parse()
        .or_else(|_| invalid_settings("its address cannot be read; %40 stands for @ in a password"))
}

fn invalid_settings<T>(why: &str) -> Result<T, Error> {
    Err(Error::InvalidSettings(why.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_work_is_refused_without_quoting_it() {
        let cases = [
            "mysql://u:hush@a/m",
            "host=a password=hush",
            "postgres://u:hush@a:port/m",
            "postgres://u:hush@a/m?hat=1",
            "postgres://u:hush@",
            "postgres://u:hush@a/m?sslmode=require",
            "postgres://u:hush@a/m?sslmode=verify-full",
        ];
        for url in cases {
            let address = PostgresAddress::Url(url.to_owned().into());
            let why = address.config(Duration::MAX).unwrap_err().to_string();
            assert!(!why.contains("hush"), "{why}");
        }
    }

    #[test]
    fn sessions_are_read_only_whatever_the_address_says() {
        let url = "postgres://a/m?options=-c%20default_transaction_read_only=off";
        let config = PostgresAddress::Url(url.to_owned().into())
            .config(Duration::from_secs(5))
            .unwrap();
        assert!(
            config
                .get_options()
                .unwrap()
                .contains("off -c default_transaction_read_only=on")
        );
    }
}
