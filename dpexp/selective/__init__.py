"""Paper S: training that releases only updates which pass a noisy test, and what that really costs."""
