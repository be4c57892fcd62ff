"""Nexmark: an auction site's stream of people, auctions and bids, and the questions that are asked of it."""
