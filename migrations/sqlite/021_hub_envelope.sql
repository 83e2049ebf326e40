-- A file has one hub, so there is nobody to send messages to.
SELECT 1;
