"""Long campaigns: clients at work while one fault follows another, and everything judged."""
